"""DistilBERT: a smaller encoder learns what a trained one, its teacher, would write into the blanks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from bertline.foundation.checked import NonNegativeFloat, PositiveFloat
from bertline.modeling.families import FAMILIES
from bertline.pretraining.objectives.base import MLM_ACCURACY, MLM_LOSS, LossTerm, Metric, Objective

if TYPE_CHECKING:
    from torch import Tensor

TEACHER = Metric(
    name="teacher_accuracy", total="teacher_correct", count="targets", title="its teacher", note="blanks filled right"
)


class DistilledOutput(NamedTuple):
    """Logits [B, P, V] of student and teacher, and hidden states [B, S, H]; None if they are not compared."""

    mlm_logits: Tensor
    teacher_logits: Tensor
    states: Tensor | None
    teacher_states: Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Distilled(Objective):
    """Masked language model with soft targets: the teacher's distribution at each target, and its hidden states.

    The teacher reads the same masked text, without dropout; it is neither trained nor saved.

    References: Sanh et al., DistilBERT (arXiv 1910.01108), section 2 for the loss of three terms, 3 for the student's
    start; the weights 5, 2 and 1 and the temperature 2 are those of the published training script.
    """

    families: ClassVar[Collection[str]] = tuple(name for name, family in FAMILIES.items() if family.wrapping is None)
    metrics: ClassVar[tuple[Metric, ...]] = (MLM_ACCURACY, TEACHER)
    title: ClassVar[str] = "the masked language model and the distributions of a teacher"
    summary: ClassVar[str] = f"{Objective.summary}; its teacher fills {{teacher_accuracy}} of the same blanks"

    kind: Literal["distilled"]
    teacher: str
    """Encoder with a masked language model head and the same vocabulary: a folder or a hub name (`NAME@REVISION`)."""
    temperature: PositiveFloat
    """Divisor of the logits of both before the softmax."""
    soft_weight: NonNegativeFloat
    """Weight of the teacher's distributions."""
    mlm_weight: NonNegativeFloat
    """Weight of the true tokens."""
    cosine_weight: NonNegativeFloat
    """Weight of the cosine distance of hidden states, at all real positions; above 0, both have one hidden size."""
    start_from_teacher: bool
    """Whether the student starts from the teacher's embeddings, heads and evenly spread layers, instead of random
    weights."""

    def check(self) -> None:
        if not self.soft_weight + self.mlm_weight:
            raise ValueError("soft_weight and mlm_weight are both 0; one must be above")

    @property
    def terms(self) -> tuple[LossTerm, ...]:  # type: ignore[override]
        terms = (
            replace(MLM_LOSS, weight=self.mlm_weight),
            LossTerm(name="soft_loss", count="targets", weight=self.soft_weight),
            LossTerm(name="cosine_loss", count="tokens", weight=self.cosine_weight),
        )
        return terms if self.cosine_weight else terms[:2]

    def output(self, model: Any, batch: Mapping[str, Tensor]) -> DistilledOutput:  # type: ignore[override]
        import torch

        logits, states = self._read(model, batch)
        with torch.no_grad():
            teacher_logits, teacher_states = self._read(
                model.teacher, {k: v for k, v in batch.items() if "dropout" not in k}
            )
        # Rows of its embeddings behind the tokens pad them to a round size.
        return DistilledOutput(logits, teacher_logits[..., : logits.shape[-1]], states, teacher_states)

    def _read(self, model: Any, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        if not self.cosine_weight:
            return Objective.output(self, model, batch).mlm_logits, None
        states, at_targets = self.states(model, batch)
        return model.mlm_logits(at_targets), states

    def sums(self, output: DistilledOutput, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:  # type: ignore[override]
        from bertline.modeling.losses import cosine_distance_sum, masked_lm_correct, soft_target_loss_sum

        labels = batch["masked_labels"]
        logits, teacher_logits = output.mlm_logits, output.teacher_logits
        sums = {
            **Objective.sums(self, output, batch),  # type: ignore[arg-type]
            "soft_loss": soft_target_loss_sum(logits, teacher_logits, labels, temperature=self.temperature),
            "teacher_correct": masked_lm_correct(teacher_logits, labels).float(),
        }
        if output.states is not None and output.teacher_states is not None:
            is_real = (self.sequence_ids(batch) > 0).reshape(output.states.shape[:-1])
            sums["cosine_loss"] = cosine_distance_sum(output.states, output.teacher_states, is_real)
        return sums
