"""Masked language model alone: full sentences in one segment, no pooler and no head on it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bertline.modeling.families import FAMILIES
from bertline.pretraining.objectives.base import LearningMargins, LossTerm, Metric, Objective

if TYPE_CHECKING:
    from torch import Tensor

    from bertline.modeling.bert import LanguageModelOutput, MaskedLanguageModel

LOSS = LossTerm(
    name="mlm_loss",
    count="targets",
    title="MLM loss, nats",
    caption="The loss of filling blanks. Below the dashed line the model uses the words around a blank, not only how "
    "frequent each word is.",
    baseline="by frequency alone",
    figure="unigram_entropy",
)
ACCURACY = Metric(
    name="mlm_accuracy",
    total="mlm_correct",
    count="targets",
    title="blanks filled right",
    share_of="blanks filled with exactly the right token",
    note="one of {vocab_size}",
)
ADVICE = {
    "unigram_entropy": "A large model may stay here for some thousand steps. Else raise optimizer.lr or the batch, "
    "try optimizer=muon_short, or short sequences first (examples.lengths=[16,64] and two pretrain.phases), and see "
    "that the text is in order.",
}
SUMMARY = (
    "On held-out text it fills {mlm_accuracy} of the blanks with exactly the right token. Its loss of {mlm_loss} nats "
    "is {mlm_loss_margin} the {mlm_loss_baseline} of guessing by frequency alone"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedLMObjective(Objective):
    """Everything of the objective `mlm` but its name, for objectives that vary it."""

    num_segments: ClassVar[int] = 1
    examples: ClassVar[str] = "full_sentences"
    with_pooler: ClassVar[bool] = False
    terms: ClassVar[tuple[LossTerm, ...]] = (LOSS,)
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY,)
    judged_by: ClassVar[str] = LOSS.name
    advice: ClassVar[Mapping[str, str]] = ADVICE
    title: ClassVar[str] = "the masked language model"
    summary: ClassVar[str] = f"{SUMMARY}."

    def model_class(self) -> type[MaskedLanguageModel]:
        """See `Objective.model_class`."""
        from bertline.modeling.bert import BertForMaskedLM

        return BertForMaskedLM

    @staticmethod
    def states(model: MaskedLanguageModel, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return hidden states of the last layer, [B, S, H] or of packed rows [R * S, H], and those at the targets."""
        import torch

        from bertline.modeling.bert import PackedRows
        from bertline.modeling.dropout import TokenMasks

        encoder, positions, masks = model.bert, batch["masked_positions"], TokenMasks.of(batch)
        if "boundaries" in batch:
            rows = PackedRows(**{name: batch[name] for name in PackedRows._fields})
            everywhere = torch.arange(rows.input_ids.numel(), device=rows.input_ids.device)
            states = encoder.forward_packed_at(rows, everywhere, batch["first_positions"], masks).hidden_states
            return states, states[positions]
        mask = batch.get("attention_mask")
        states = encoder(batch["input_ids"], batch["token_type_ids"], mask, masks).hidden_states
        return states, states.gather(1, positions[..., None].expand(-1, -1, states.shape[-1]))

    def sums(self, output: LanguageModelOutput, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Objective.sums`."""
        from bertline.modeling.losses import masked_lm_correct, masked_lm_loss_sum

        labels = batch["masked_labels"]
        loss, _ = masked_lm_loss_sum(output.mlm_logits, labels)
        return {"mlm_loss": loss, "mlm_correct": masked_lm_correct(output.mlm_logits, labels).float()}

    def guesses(self, output: LanguageModelOutput) -> Tensor:
        """See `Objective.guesses`."""
        return output.mlm_logits

    def baselines(self, known: Mapping[str, Any]) -> dict[str, float]:
        """Return the unigram entropy, the loss of guessing by frequency alone."""
        return {"mlm_loss": known["unigram_entropy"]} if "unigram_entropy" in known else {}

    def alarms(
        self, means: Mapping[str, float], baselines: Mapping[str, float], margins: LearningMargins, *, steps: int
    ) -> Iterator[tuple[str, str]]:
        """See `Objective.alarms`."""
        loss, entropy = means["mlm_loss"], baselines["mlm_loss"]
        if loss > entropy - margins.entropy_margin:
            yield (
                "unigram_entropy",
                f"the MLM loss of the last {steps:,} steps is {loss:.2f} nats; guessing blanks by frequency "
                f"alone gives {entropy:.2f}",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Mlm(MaskedLMObjective):
    """Masked language model on full sentences, without sentence pairs (RoBERTa, arXiv 1907.11692, section 4.2)."""

    families: ClassVar[Collection[str]] = tuple(FAMILIES)

    kind: Literal["mlm"]
