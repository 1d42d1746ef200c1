"""The contract of a pretraining objective, over whose names training, validation, alarms, report and card loop.

The other files of the package have the objectives: BERT's, the default, is in `sentence_pairs`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bertline.foundation.checked import Checked
from bertline.modeling.families import FAMILIES

if TYPE_CHECKING:  # an objective is also a section of the configuration, which is read without torch
    from torch import Tensor

    from bertline.encoders.wrapped import WrappedMaskedLM
    from bertline.modeling.bert import LanguageModelOutput, MaskedLanguageModel
    from bertline.modeling.checkpoint import Checkpoint
    from bertline.modeling.config import ModelConfig
    from bertline.tokenization.tokenizer import Tokenizer

Count = Literal["targets", "sequences", "tokens"]
"""Number that a sum over the global batch is divided by: tokens chosen for prediction, sequences, or real tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mean:
    """Mean of a sum over the global batch: `train/NAME` and `val/NAME`."""

    name: str
    count: Count
    title: str = ""
    """Title in the report and the model card; empty: it is not shown there."""
    baseline: str = ""
    """What its baseline is, in words; empty: it has none."""
    alarm: str = ""
    """Kind of the alarm that is raised while it is still at its baseline; empty: there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossTerm(_Mean):
    """Term of the loss, in nats: a mean, whose sum has its name, times a weight."""

    weight: float = 1.0
    caption: str = ""
    """Sentences below its chart."""
    figure: str | None = None
    """Name of the baseline among the headline figures of pretraining; None if it is not one of them."""
    unit: ClassVar[Literal["nats"]] = "nats"

    @property
    def total(self) -> str:
        """Name of the sum."""
        return self.name

    @property
    def loss(self) -> str:
        """Name of the term that trains it: itself."""
        return self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric(_Mean):
    """Share that is reported and not trained."""

    total: str
    """Name of the sum."""
    share_of: str = ""
    """What it is the share of, in words, for the caption of its chart and the model card; empty: the title says it."""
    chart: str = "accuracy"
    """Name of the chart in the report that has the curves of all metrics with this name."""
    loss: str = ""
    """Name of the term that trains it; if that has no weight, the metric raises no alarm."""
    unit: ClassVar[Literal["fraction"]] = "fraction"


MLM_LOSS = LossTerm(
    name="mlm_loss",
    count="targets",
    title="MLM loss, nats",
    caption="The loss of filling blanks. Below the dashed line the model uses the words around a blank, not only how "
    "frequent each word is.",
    baseline="by frequency alone",
    figure="unigram_entropy",
    alarm="unigram_entropy",
)
MLM_ACCURACY = Metric(
    name="mlm_accuracy",
    total="mlm_correct",
    count="targets",
    title="blanks filled right",
    share_of="blanks filled with exactly the right token",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningMargins:
    """Margins by which the metrics of an objective must beat their baselines to count as learning."""

    entropy_margin: float
    """Nats by which a loss must be below its baseline, the unigram entropy or chance."""
    nsp_margin: float
    """Margin above chance of the accuracy of pairs; proportionally less if chance is above 0.5."""


class Objective(Checked):
    """A section of the configuration that knows everything which depends on what is learned.

    Here it is the masked language model alone, on full sentences; an objective says in what it differs. Its file is
    imported wherever a configuration is read, so torch and the model are imported inside the methods.
    """

    kind: str
    num_segments: ClassVar[int] = 1
    """Number of segments of the examples that it learns from."""
    examples: ClassVar[str] = "full_sentences"
    """Such examples, as a choice of the group `examples`."""
    with_pooler: ClassVar[bool] = False
    """Whether a head reads the pooler."""
    families: ClassVar[Collection[str]] = ("bert",)
    """Families of encoders that can be trained with it."""
    pairs_together: ClassVar[int | None] = None
    """Number of examples whose segments are compared with each other, each segment a sequence of its own, at once on
    one rank. None: each example is one sequence, and none depends on another."""
    neighbours_together: ClassVar[int] = 1
    """Number of examples, one after another in the corpus, that steps take together; 1: each is drawn alone."""
    fills_blanks: ClassVar[bool] = True
    """Whether the encoder fills the blanks itself."""
    reads_draws: ClassVar[bool] = False
    """Whether batches have `draws`, a random number for each target; see `examples.masking.target_draws`."""
    terms: ClassVar[tuple[LossTerm, ...]] = (MLM_LOSS,)
    """Terms of the loss, in the order in which they are added."""
    metrics: ClassVar[tuple[Metric, ...]] = (MLM_ACCURACY,)
    """Metrics besides the terms of the loss; the first is shown next to the loss where there is room for one."""
    judged_by: ClassVar[str] = MLM_LOSS.name
    """Name of the loss term that is the headline figure."""
    advice: ClassVar[Mapping[str, str]] = {
        "unigram_entropy": "A large model may stay here for some thousand steps. Else raise optimizer.lr or the "
        "batch, try optimizer=muon_short, or short sequences first (examples.lengths=[16,64] and two pretrain.phases), "
        "and see that the text is in order."
    }
    """Advice for each kind of alarm that `alarms` can raise; the texts name configuration keys."""
    title: ClassVar[str] = "the masked language model"
    """What the encoder learns with, as a phrase for the model card."""
    summary: ClassVar[str] = (
        "On held-out text it fills {mlm_accuracy} of the blanks with exactly the right token. Its loss of {mlm_loss} "
        "nats is {mlm_loss_margin} the {mlm_loss_baseline} of guessing by frequency alone"
    )
    """Sentences on the held-out scores, without the last full stop. Placeholders for each term and metric with a title:
    `{NAME}`, `{NAME_baseline}` and `{NAME_margin}`, the distance from the baseline with `below` or `above`."""

    def model_class(self) -> type[MaskedLanguageModel]:
        """Return the class of an encoder of bertline's own layers with the heads of the objective."""
        from bertline.modeling.bert import BertForMaskedLM, BertForPreTraining

        return BertForPreTraining if self.with_pooler else BertForMaskedLM

    def wrapped_model(
        self, config: ModelConfig, tokenizer: Tokenizer, checkpoint: Checkpoint | None, *, seed: int
    ) -> WrappedMaskedLM:
        """Return a model of transformers with the heads of the objective: a checkpoint's, or with random weights."""
        from bertline.encoders.wrapped import start_language_model

        head = "pretraining" if self.with_pooler else "mlm"
        return start_language_model(config, tokenizer, head, checkpoint, seed=seed)

    def load_teacher(self, config: ModelConfig, tokenizer: Tokenizer) -> MaskedLanguageModel | None:
        """Return the model whose outputs the encoder imitates, in evaluation mode; None if it imitates none."""
        return None

    def start(self, model: MaskedLanguageModel) -> None:
        """Replace random weights from which the objective does not start."""

    def problems(
        self, examples: Mapping[str, Any], batch_sizes: Sequence[int], *, model: ModelConfig, num_ranks: int
    ) -> Iterator[str]:
        """Yield a message for each reason why the objective cannot learn from these examples in these steps.

        `examples` is a section or manifest, `batch_sizes` has that of each phase; `num_ranks` is 1 where it is unknown.
        """
        yield from ()

    def output(self, model: Any, batch: Mapping[str, Tensor]) -> LanguageModelOutput:
        """Return the output of the model on a micro-batch of `examples.masking` or packed rows of `examples.packing`.

        `attention_mask` is left out where no row has padding; in training the batch has what `TokenMasks.of` reads.
        """
        from bertline.modeling.dropout import TokenMasks

        masks = TokenMasks.of(batch)
        if "boundaries" in batch:
            return model.forward_packed(batch, masks)
        mask = batch.get("attention_mask")
        return model(batch["input_ids"], batch["token_type_ids"], mask, batch["masked_positions"], masks)

    @staticmethod
    def states(model: MaskedLanguageModel, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return hidden states of the last layer, [B, S, H] or of packed rows [R * S, H], and those at the targets."""
        import torch

        from bertline.modeling.dropout import TokenMasks
        from bertline.modeling.layers import gather_positions

        encoder, positions, masks = model.bert, batch["masked_positions"], TokenMasks.of(batch)
        if "boundaries" in batch:
            everywhere = torch.arange(batch["input_ids"].numel(), device=positions.device)
            states = encoder.forward_packed_at(batch, everywhere, masks).hidden_states
            return states, states[positions]
        mask = batch.get("attention_mask")
        states = encoder(batch["input_ids"], batch["token_type_ids"], mask, masks).hidden_states
        return states, gather_positions(states, positions)

    @staticmethod
    def sequence_ids(batch: Mapping[str, Tensor]) -> Tensor:
        """Return [B, S] different numbers for the sequences of a row, 0 in padding."""
        ids = batch["sequence_ids"] if "sequence_ids" in batch else batch.get("attention_mask")
        return batch["input_ids"].new_ones(batch["input_ids"].shape) if ids is None else ids

    def sums(self, output: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums of a micro-batch by name, as fp32 scalars: those of the terms and of the metrics."""
        from bertline.modeling.losses import masked_lm_correct, masked_lm_loss_sum

        labels = batch["masked_labels"]
        loss, _ = masked_lm_loss_sum(output.mlm_logits, labels)
        return {"mlm_loss": loss, "mlm_correct": masked_lm_correct(output.mlm_logits, labels).float()}

    def loss(
        self,
        sums: Mapping[str, Tensor],
        *,
        targets: Tensor | float,
        sequences: int,
        tokens: Tensor | float = 1,
        factor: float = 1,
    ) -> Tensor:
        """Return the part of a micro-batch in the loss of a step, such as `mlm + w * nsp`: the sum of the terms' means.

        Targets, sequences and real tokens are counted in the global batch; tokens only for terms of each token.
        """
        # A tensor stays on its device. Without targets the sum is 0 anyway.
        at_least_one = targets.clamp(min=1) if hasattr(targets, "clamp") else max(1, targets)
        counts: dict[Count, Any] = {"targets": at_least_one, "sequences": sequences, "tokens": tokens}
        terms = (sums[term.name] * (factor * term.weight / counts[term.count]) for term in self.terms)
        return reduce(add, terms)  # without a zero at the start, which the backward pass would have to follow

    def baselines(self, known: Mapping[str, Any]) -> dict[str, float]:
        """Return the baseline of each metric that has one: the score that needs no learning from context.

        `known` has settings and measurements of the examples, such as `unigram_entropy`; a baseline whose facts are
        missing is left out.
        """
        return {"mlm_loss": known["unigram_entropy"]} if "unigram_entropy" in known else {}

    def alarms(
        self, averages: Mapping[str, float], baselines: Mapping[str, float], margins: LearningMargins, *, steps: int
    ) -> Iterator[tuple[str, str]]:
        """Yield kind and message of the alarm of each mean still at its baseline; `averages` cover the last `steps`."""
        weights = {term.name: term.weight for term in self.terms}
        for mean in means_of(self):
            if not mean.alarm or not weights.get(mean.loss, 1.0):
                continue
            average, baseline = averages[mean.name], baselines[mean.name]
            if isinstance(mean, LossTerm):
                is_at_baseline = average > baseline - margins.entropy_margin
            else:  # the margin is above a chance of 0.5, less above a higher chance
                is_at_baseline = average < baseline + 2 * (1 - baseline) * margins.nsp_margin
            if is_at_baseline:
                yield (
                    mean.alarm,
                    f"{mean.title} over the last {steps:,} steps: {average:.3f} ({mean.baseline}: {baseline:.3f})",
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class Mlm(Objective):
    """Masked language model on full sentences, without sentence pairs (RoBERTa, arXiv 1907.11692, section 4.2)."""

    families: ClassVar[Collection[str]] = tuple(FAMILIES)

    kind: Literal["mlm"]


def means_of(objective: Objective) -> tuple[LossTerm | Metric, ...]:
    """Return the terms of an objective, then its metrics."""
    return (*objective.terms, *objective.metrics)


def sum_names(objective: Objective) -> tuple[str, ...]:
    """Return the names of the sums of an objective, terms before metrics."""
    return tuple(mean.total for mean in means_of(objective))


def shown_means(objective: Objective) -> tuple[LossTerm | Metric, ...]:
    """Return the terms and metrics that the report and the model card show: those with a title."""
    return tuple(mean for mean in means_of(objective) if mean.title)


def means(objective: Objective, total: Mapping[str, float]) -> dict[str, float]:
    """Return the mean of each term and metric from the sums and counts of the global batch; NaN where a count is 0."""
    return {
        mean.name: total[mean.total] / total[mean.count] if total[mean.count] else math.nan
        for mean in means_of(objective)
    }


def weighted_loss(objective: Objective, averages: Mapping[str, float]) -> float:
    """Return the loss from the means of its terms."""
    return sum((term.weight * averages[term.name] for term in objective.terms), 0.0)
