"""DistilBERT: a smaller encoder learns what a trained one, its teacher, would write into the blanks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from bertline.foundation.checked import NonNegativeFloat, PositiveFloat, UserPathOrHubName
from bertline.foundation.errors import ConfigError
from bertline.modeling.families import FAMILIES
from bertline.pretraining.objectives.base import MLM_ACCURACY, MLM_LOSS, LossTerm, Metric, Objective

if TYPE_CHECKING:
    from torch import Tensor

    from bertline.modeling.bert import MaskedLanguageModel
    from bertline.modeling.config import ModelConfig
    from bertline.tokenization.tokenizer import Tokenizer

TEACHER = Metric(name="teacher_accuracy", total="teacher_correct", count="targets", title="its teacher")


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

    families: ClassVar[Collection[str]] = tuple(name for name, family in FAMILIES.items() if family.can("distillation"))
    metrics: ClassVar[tuple[Metric, ...]] = (MLM_ACCURACY, TEACHER)
    title: ClassVar[str] = "the masked language model and the distributions of a teacher"
    summary: ClassVar[str] = f"{Objective.summary}; its teacher fills {{teacher_accuracy}} of the same blanks"

    kind: Literal["distilled"]
    teacher: UserPathOrHubName
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

    def load_teacher(self, config: ModelConfig, tokenizer: Tokenizer) -> MaskedLanguageModel:
        """See `Objective.load_teacher`; ConfigError if it cannot teach such a student."""
        from bertline.encoders.loading import load_model
        from bertline.modeling.checkpoint import Checkpoint

        teacher, problem = Checkpoint.open(self.teacher), None
        if not teacher.family.can("distillation") or not teacher.has_mlm_head:
            problem = "it is not of BERT's kin, or has no masked language model head"
        elif teacher.tokenizer.vocab != tokenizer.vocab:
            problem = (
                "its vocabulary is another one, so its distributions are over other tokens: use tokenizer=existing "
                f"tokenizer.path={self.teacher}"
            )
        elif config.num_hidden_layers > teacher.config.num_hidden_layers:
            problem = (
                f"the student has more layers ({config.num_hidden_layers}) than it ({teacher.config.num_hidden_layers})"
            )
        elif self.cosine_weight and config.hidden_size != teacher.config.hidden_size:
            problem = (
                f"its hidden size is {teacher.config.hidden_size}, the student's {config.hidden_size}; use "
                "objective.cosine_weight=0 objective.start_from_teacher=false"
            )
        if problem is not None:
            raise ConfigError(f"objective.teacher names {teacher.folder}, which cannot teach this student: {problem}")
        model: Any = load_model(teacher, "mlm").eval()
        return model

    def start(self, model: MaskedLanguageModel) -> None:
        """Copy layers of the teacher, and all that both have besides (arXiv 1910.01108, section 3)."""
        from bertline.encoders.loading import spread_layers

        teacher = model.teacher
        if not self.start_from_teacher or teacher is None:
            return
        layers = spread_layers(len(teacher.bert.layers), len(model.bert.layers))
        theirs = teacher.state_dict()
        for name, weight in model.state_dict().items():
            source = re.sub(r"(?<=layers\.)\d+", lambda number: str(layers[int(number[0])]), name)
            if source in theirs and theirs[source].shape != weight.shape:
                raise ConfigError(
                    f"objective.start_from_teacher: {name} is {list(weight.shape)} in the student and "
                    f"{list(theirs[source].shape)} in the teacher. Give the model the teacher's sizes, or set it to "
                    "false."
                )
            weight.copy_(theirs.get(source, weight))

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
