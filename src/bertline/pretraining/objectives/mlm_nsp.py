"""Masked language model plus next sentence prediction: the two tasks of the paper (section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bertline.pretraining.objectives import mlm
from bertline.pretraining.objectives.base import (
    LearningMargins,
    LossTerm,
    Metric,
    ReportSpec,
    ShownChart,
    ShownCurve,
    ShownScore,
    ShownTable,
)
from bertline.pretraining.objectives.mlm import MaskedLMObjective

if TYPE_CHECKING:
    from torch import Tensor

    from bertline.modeling.bert import MaskedLanguageModel, PreTrainingOutput

ADVICE = {
    **mlm.ADVICE,
    "nsp_at_chance": "It comes after the blanks, so wait while the MLM loss is near the unigram entropy. Else see that "
    "documents have several sentences in their order; where text has no order, set objective.nsp_weight=0 "
    "or use objective=mlm with examples=full_sentences.",
}
REPORT_SPEC = ReportSpec(
    title="the masked language model and next sentence prediction",
    summary=f"{mlm.SUMMARY}, and it tells the next sentence from a random one in {{nsp_accuracy}} of cases (chance: "
    "{nsp_accuracy_baseline}).",
    score=mlm.ACCURACY.name,
    score_word="accuracy",
    scores=(
        mlm.LOSS_SCORE,
        mlm.ACCURACY_SCORE,
        ShownScore(
            metric="nsp_accuracy",
            unit="fraction",
            tile="next sentence right",
            tile_note="chance {baseline}",
            card="next sentence, accuracy",
            card_baseline="guessing",
        ),
    ),
    charts=(
        mlm.LOSS_CHART,
        ShownChart(
            name="accuracy",
            y_name="held-out accuracy",
            caption="The share of blanks filled with exactly the right token, and of sentence pairs judged right.",
            curves=(
                mlm.ACCURACY_CURVE,
                ShownCurve(title="next sentence right", metric="val/nsp_accuracy", css="c1"),
            ),
            level=("chance, next sentence", "nsp_accuracy"),
        ),
    ),
    tables=(*mlm.TABLES, ShownTable(name="nsp_accuracy", metric="nsp_accuracy", baseline=None)),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmNspObjective(MaskedLMObjective):
    """Everything of the objective `mlm_nsp` but its name, for objectives that vary it."""

    num_segments: ClassVar[int] = 2
    examples: ClassVar[str] = "sentence_pairs"
    with_pooler: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        mlm.ACCURACY,
        Metric(name="nsp_accuracy", total="nsp_correct", count="sequences"),
    )
    advice: ClassVar[Mapping[str, str]] = ADVICE
    report_spec: ClassVar[ReportSpec] = REPORT_SPEC

    nsp_weight: float
    """Weight of the NSP loss relative to the MLM loss; the paper adds the two (1.0)."""

    @property
    def terms(self) -> tuple[LossTerm, ...]:  # type: ignore[override]
        """See `Objective.terms`."""
        return (mlm.LOSS, nsp_loss(self.nsp_weight))

    def model_class(self) -> type[MaskedLanguageModel]:
        """See `Objective.model_class`."""
        from bertline.modeling.bert import BertForPreTraining

        return BertForPreTraining

    def sums(self, output: PreTrainingOutput, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:  # type: ignore[override]
        """See `Objective.sums`."""
        from bertline.modeling.losses import sequence_loss_sum, sequences_correct

        labels = batch["next_sentence_labels"]
        of_blanks = MaskedLMObjective.sums(self, output, batch)
        return {
            "mlm_loss": of_blanks["mlm_loss"],
            "nsp_loss": sequence_loss_sum(output.nsp_logits, labels),
            "mlm_correct": of_blanks["mlm_correct"],
            "nsp_correct": sequences_correct(output.nsp_logits, labels).float(),
        }

    def baselines(self, known: Mapping[str, Any]) -> dict[str, float]:
        """Return the unigram entropy, and the accuracy of always predicting the more frequent label.

        That accuracy is 0.5 if both labels are equally frequent, as in the paper (A.2).
        """
        found = MaskedLMObjective.baselines(self, known)
        if "random_next_prob" in known:
            found["nsp_accuracy"] = max(known["random_next_prob"], 1 - known["random_next_prob"])
        return found

    def alarms(
        self, means: Mapping[str, float], baselines: Mapping[str, float], margins: LearningMargins, *, steps: int
    ) -> Iterator[tuple[str, str]]:
        """See `Objective.alarms`. Without weight in the loss, next sentence prediction raises no alarm."""
        yield from MaskedLMObjective.alarms(self, means, baselines, margins, steps=steps)
        accuracy, chance = means["nsp_accuracy"], baselines["nsp_accuracy"]
        if self.nsp_weight > 0 and accuracy < nsp_learnt_from(chance, margins.nsp_margin):
            yield (
                "nsp_at_chance",
                f"the share of next sentences judged right in the last {steps:,} steps is {accuracy:.3f}; always "
                f"saying the more frequent label gives {chance:g}",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class MlmNsp(MlmNspObjective):
    """Masked language model plus next sentence prediction on sentence pairs (paper, section 3.1)."""

    kind: Literal["mlm_nsp"]


def nsp_loss(weight: float) -> LossTerm:
    """Return the term of next sentence prediction."""
    return LossTerm(name="nsp_loss", count="sequences", weight=weight)


def nsp_learnt_from(chance: float, margin: float) -> float:
    """Return the NSP accuracy that counts as learning: `margin` above a chance of 0.5, less above a higher chance.

    >>> nsp_learnt_from(0.5, 0.02), round(nsp_learnt_from(0.9, 0.02), 6), nsp_learnt_from(1.0, 0.02)
    (0.52, 0.904, 1.0)
    """
    return chance + 2 * (1 - chance) * margin
