"""ELECTRA: a small generator fills the blanks, and the encoder tells at every token whether it is the text's own.

The encoder learns from all tokens of a sequence instead of the 15 % that are masked (Clark et al., arXiv 2003.10555).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from bertline.foundation.checked import PositiveFloat, PositiveFraction
from bertline.pretraining.objectives.base import MLM_ACCURACY, MLM_LOSS, LearningMargins, LossTerm, Metric, Objective

if TYPE_CHECKING:
    from torch import Tensor

    from bertline.encoders.wrapped import WrappedMaskedLM
    from bertline.modeling.checkpoint import Checkpoint
    from bertline.modeling.config import ModelConfig
    from bertline.tokenization.tokenizer import Tokenizer

_ACCURACY = Metric(
    name="detection_accuracy",
    total="detected",
    count="tokens",
    title="replaced tokens told",
    share_of="tokens of which it says rightly whether they were replaced",
    chart="detection_accuracy",
)
UNREPLACED = Metric(
    name="unreplaced_share", total="unreplaced", count="tokens", title="always saying no", chart="detection_accuracy"
)


class ReplacedTokenOutput(NamedTuple):
    """Logits [B, P, V] of the generator, those [B, S] of the detector (above 0: replaced), and the truth [B, S]."""

    mlm_logits: Tensor
    detector_logits: Tensor
    is_replaced: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplacedToken(Objective):
    """Replaced token detection: the encoder is the detector, the masked language model a narrower generator.

    The detector reads the text with the generator's picks at the targets. A pick is drawn from the generator's
    distribution by a number that is a function of (seed, epoch, example, position), so a resumed run picks alike.

    Notes:
        The headline figure is the generator's loss: the detector's rises while a better generator makes it harder.

    Reference: Clark et al., ELECTRA (arXiv 2003.10555), section 2 and, for shared embeddings and sizes, 3.2.
    """

    families: ClassVar[Collection[str]] = ("electra",)
    fills_blanks: ClassVar[bool] = False
    reads_draws: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (_ACCURACY, UNREPLACED, MLM_ACCURACY)
    advice: ClassVar[Mapping[str, str]] = {
        **Objective.advice,
        "detection_at_chance": "It comes after the generator has learned some tokens, so wait while the MLM loss is "
        "near the unigram entropy. Else raise optimizer.lr, or lower objective.generator_width.",
    }
    title: ClassVar[str] = "replaced token detection"
    summary: ClassVar[str] = (
        "On held-out text it says of {detection_accuracy} of the tokens rightly whether its generator replaced them "
        "(always saying no: {unreplaced_share}). The generator fills {mlm_accuracy} of the blanks with exactly the "
        "right token; its loss of {mlm_loss} nats is {mlm_loss_margin} the {mlm_loss_baseline} of guessing by "
        "frequency alone"
    )

    kind: Literal["replaced_token"]
    generator_width: PositiveFraction
    """Hidden size, heads and feed-forward size of the generator, as a fraction of the detector's (section 3.2)."""
    detection_weight: PositiveFloat
    """Weight of the detector's loss relative to the generator's (appendix A: 50; up to hidden size 256 the default
    is 1, with which small detectors learn more: docs/howto/flavours.md)."""

    @property
    def terms(self) -> tuple[LossTerm, ...]:  # type: ignore[override]
        return (MLM_LOSS, LossTerm(name="detection_loss", count="tokens", weight=self.detection_weight))

    def wrapped_model(
        self, config: ModelConfig, tokenizer: Tokenizer, checkpoint: Checkpoint | None, *, seed: int
    ) -> WrappedMaskedLM:
        """See `Objective.wrapped_model`: the detector with its generator."""
        from bertline.encoders.wrapped import start_replaced_token

        return start_replaced_token(config, tokenizer, self.generator_width, checkpoint, seed=seed)

    def problems(
        self, examples: Mapping[str, Any], batch_sizes: Sequence[int], *, model: ModelConfig, num_ranks: int
    ) -> Iterator[str]:
        """See `Objective.problems`: the generator has whole heads, of the size of the detector's."""
        head_size = model.hidden_size // model.num_attention_heads
        width = model.hidden_size * self.generator_width
        if width % head_size:
            yield (
                f"objective.generator_width is {self.generator_width:g}, which makes a generator of hidden size "
                f"{width:g}: not a whole number of heads of size {head_size} (model.hidden_size / "
                f"model.num_attention_heads). Use a multiple of {head_size / model.hidden_size:g}, or smaller heads "
                "(model.num_attention_heads)."
            )

    def output(self, model: Any, batch: Mapping[str, Tensor]) -> ReplacedTokenOutput:  # type: ignore[override]
        import torch

        from bertline.foundation.labels import IGNORED_LABEL
        from bertline.modeling.losses import sampled_tokens

        # Not super(): `slots=True` creates a new class, and zero-argument super() refers to the original one.
        mlm_logits = Objective.output(self, model, batch).mlm_logits
        positions, labels = batch["masked_positions"], batch["masked_labels"]
        picks = sampled_tokens(mlm_logits, batch["draws"])
        # Unused entries have position 0, a special token, which stays as it is.
        used, ids = labels != IGNORED_LABEL, batch["input_ids"]
        read = ids.scatter(1, positions, torch.where(used, picks, ids.gather(1, positions)))
        is_replaced = torch.zeros_like(ids, dtype=torch.bool).scatter(1, positions, used & (picks != labels))
        logits = model.detect(read, batch["token_type_ids"], batch.get("attention_mask"))
        return ReplacedTokenOutput(mlm_logits, logits, is_replaced)

    def sums(self, output: ReplacedTokenOutput, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:  # type: ignore[override]
        from bertline.modeling.losses import replaced_token_sums

        is_real = self.sequence_ids(batch) > 0
        loss, detected, unreplaced = replaced_token_sums(output.detector_logits, output.is_replaced, is_real)
        return {
            **Objective.sums(self, output, batch),  # type: ignore[arg-type]
            "detection_loss": loss,
            "detected": detected,
            "unreplaced": unreplaced,
        }

    def alarms(
        self, averages: Mapping[str, float], baselines: Mapping[str, float], margins: LearningMargins, *, steps: int
    ) -> Iterator[tuple[str, str]]:
        """See `Objective.alarms`. The detector's loss at chance is the entropy of how often tokens are replaced."""
        yield from Objective.alarms(self, averages, baselines, margins, steps=steps)
        loss, share = averages["detection_loss"], averages[UNREPLACED.name]
        chance = -sum(part * math.log(part) for part in (share, 1 - share) if part > 0)
        if loss >= chance:
            message = (
                f"loss of telling replaced tokens over the last {steps:,} steps: {loss:.3f} (chance: {chance:.3f})"
            )
            yield "detection_at_chance", message
