"""Masked language model plus next sentence prediction: the two tasks of the paper (section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bertline.pretraining.objectives.base import MLM_ACCURACY, MLM_LOSS, LearningMargins, LossTerm, Metric, Objective

if TYPE_CHECKING:
    from torch import Tensor

    from bertline.modeling.bert import MaskedLanguageModel, PreTrainingOutput
    from bertline.modeling.config import ModelConfig


def pair_metrics(task: str, name: str) -> tuple[Metric, ...]:
    """Return the accuracies of blanks and of the labels of pairs; `task` is the prefix of the names."""
    pairs = Metric(
        name=f"{task}_accuracy",
        total=f"{task}_correct",
        count="sequences",
        title=f"{name} right",
        share_of=f"sentence pairs judged right ({name})",
        baseline="chance",
    )
    return (MLM_ACCURACY, pairs)


@dataclass(frozen=True, kw_only=True, slots=True)
class PairObjective(Objective):
    """A masked language model that also learns one of two labels of each pair of segments, at the first position."""

    num_segments: ClassVar[int] = 2
    with_pooler: ClassVar[bool] = True
    task: ClassVar[str]
    """Prefix of the names of its loss, accuracy, weight and alarm."""
    label: ClassVar[str]
    """What label 1 means, in words."""
    label_prob: ClassVar[str]
    """Setting of the examples that is the share of label 1."""

    @property
    def pair_loss(self) -> LossTerm:
        """The term of the labels of pairs."""
        return LossTerm(name=f"{self.task}_loss", count="sequences", weight=getattr(self, f"{self.task}_weight"))

    @property
    def terms(self) -> tuple[LossTerm, ...]:  # type: ignore[override]
        return (MLM_LOSS, self.pair_loss)

    def model_class(self) -> type[MaskedLanguageModel]:
        from bertline.modeling.bert import BertForPreTraining

        return BertForPreTraining

    def problems(
        self, examples: Mapping[str, Any], batch_sizes: Sequence[int], *, model: ModelConfig, num_ranks: int
    ) -> Iterator[str]:
        """See `Objective.problems`: label 1 of the examples must be that of the objective."""
        swapped = examples.get("swapped_prob")
        if bool(swapped) != (self.label_prob == "swapped_prob"):
            yield (
                f"examples.swapped_prob is {swapped or 'null'}, but objective.kind is {self.kind}, whose label 1 is "
                f"{self.label}. Use examples={self.examples}, or another objective."
            )

    def sums(self, output: PreTrainingOutput, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:  # type: ignore[override]
        from bertline.modeling.losses import sequence_loss_sum, sequences_correct

        labels = batch["next_sentence_labels"]
        return {
            **Objective.sums(self, output, batch),
            f"{self.task}_loss": sequence_loss_sum(output.nsp_logits, labels),
            f"{self.task}_correct": sequences_correct(output.nsp_logits, labels).float(),
        }

    def baselines(self, known: Mapping[str, Any]) -> dict[str, float]:
        """Return the unigram entropy, and the accuracy of always predicting the more frequent label.

        That accuracy is 0.5 if both labels are equally frequent, as in the papers (BERT, A.2).
        """
        found = Objective.baselines(self, known)
        if self.label_prob in known:
            found[f"{self.task}_accuracy"] = max(known[self.label_prob], 1 - known[self.label_prob])
        return found

    def alarms(
        self, means: Mapping[str, float], baselines: Mapping[str, float], margins: LearningMargins, *, steps: int
    ) -> Iterator[tuple[str, str]]:
        """See `Objective.alarms`. Without weight in the loss, the labels of pairs raise no alarm."""
        yield from Objective.alarms(self, means, baselines, margins, steps=steps)
        accuracy, chance = means[f"{self.task}_accuracy"], baselines[f"{self.task}_accuracy"]
        if self.pair_loss.weight > 0 and accuracy < learnt_from(chance, margins.nsp_margin):
            yield (
                f"{self.task}_at_chance",
                f"the share of pairs judged right (label 1: {self.label}) in the last {steps:,} steps is "
                f"{accuracy:.3f}; always saying the more frequent label gives {chance:g}",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmNspObjective(PairObjective):
    """Everything of the objective `mlm_nsp` but its name, for objectives that vary it."""

    examples: ClassVar[str] = "sentence_pairs"
    metrics: ClassVar[tuple[Metric, ...]] = pair_metrics("nsp", "next sentence")
    advice: ClassVar[Mapping[str, str]] = {
        **Objective.advice,
        "nsp_at_chance": "It comes after the blanks, so wait while the MLM loss is near the unigram entropy. Else see "
        "that documents have several sentences in their order; where text has no order, set objective.nsp_weight=0 "
        "or use objective=mlm with examples=full_sentences.",
    }
    title: ClassVar[str] = "the masked language model and next sentence prediction"
    summary: ClassVar[str] = (
        f"{Objective.summary}, and it tells the next sentence from a random one in {{nsp_accuracy}} of cases (chance: "
        "{nsp_accuracy_baseline})"
    )
    task: ClassVar[str] = "nsp"
    label: ClassVar[str] = "a random second segment"
    label_prob: ClassVar[str] = "random_next_prob"

    nsp_weight: float
    """Weight of the NSP loss relative to the MLM loss; the paper adds the two (1.0)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmNsp(MlmNspObjective):
    """Masked language model plus next sentence prediction on sentence pairs (paper, section 3.1)."""

    kind: Literal["mlm_nsp"]


def learnt_from(chance: float, margin: float) -> float:
    """Return the accuracy of pairs that counts as learning: `margin` above a chance of 0.5, less above a higher chance.

    >>> learnt_from(0.5, 0.02), round(learnt_from(0.9, 0.02), 6), learnt_from(1.0, 0.02)
    (0.52, 0.904, 1.0)
    """
    return chance + 2 * (1 - chance) * margin
