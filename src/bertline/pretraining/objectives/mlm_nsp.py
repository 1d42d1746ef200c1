"""Masked language model plus next sentence prediction: the two tasks of the paper (section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from bertline.modeling.attention import AttentionKind
from bertline.modeling.bert import BertForPreTraining, PreTrainingOutput
from bertline.modeling.config import ModelConfig
from bertline.modeling.huggingface import load_pretraining_model
from bertline.modeling.losses import (
    masked_lm_correct,
    masked_lm_loss_sum,
    next_sentence_correct,
    next_sentence_loss_sum,
)
from bertline.pretraining.objectives import mlm
from bertline.pretraining.objectives.base import (
    LossTerm,
    Metric,
    Showing,
    ShownChart,
    ShownCurve,
    ShownScore,
    ShownTable,
)
from bertline.pretraining.objectives.config import LearningMargins, MlmNspObjectiveConfig


class MlmNsp:
    """The objective `kind: mlm_nsp`. It learns from sentence pairs with masked tokens.

    Args:
        config: Objective section.
    """

    def __init__(self, config: MlmNspObjectiveConfig) -> None:
        self.terms = (
            mlm.LOSS,
            LossTerm(name="nsp_loss", count="sequences", weight=config.nsp_weight),
        )
        self.metrics = (
            mlm.ACCURACY,
            Metric(name="nsp_accuracy", total="nsp_correct", count="sequences"),
        )
        self.judged_by = mlm.LOSS.name
        self.advice: Mapping[str, str] = ADVICE
        self.showing = SHOWING
        self._config = config
        self._of_blanks = mlm.Mlm()

    def new_model(
        self, config: ModelConfig, *, vocab_size: int, pad_token_id: int, attention: AttentionKind
    ) -> BertForPreTraining:
        """See `Objective.new_model`."""
        return BertForPreTraining(config, vocab_size=vocab_size, pad_token_id=pad_token_id, attention=attention)

    def load_model(self, folder: Path) -> BertForPreTraining:
        """See `Objective.load_model`."""
        return load_pretraining_model(folder)

    def sums(self, output: PreTrainingOutput, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Objective.sums`."""
        masked_labels, next_sentence_labels = batch["masked_labels"], batch["next_sentence_labels"]
        mlm_loss, _ = masked_lm_loss_sum(output.mlm_logits, masked_labels)
        return {
            "mlm_loss": mlm_loss,
            "nsp_loss": next_sentence_loss_sum(output.nsp_logits, next_sentence_labels),
            "mlm_correct": masked_lm_correct(output.mlm_logits, masked_labels).float(),
            "nsp_correct": next_sentence_correct(output.nsp_logits, next_sentence_labels).float(),
        }

    def guesses(self, output: PreTrainingOutput) -> Tensor:
        """See `Objective.guesses`."""
        return output.mlm_logits

    def baselines(self, known: Mapping[str, Any]) -> dict[str, float]:
        """Return the unigram entropy, and the accuracy of always predicting the more frequent label.

        That accuracy is 0.5 if both labels are equally frequent, as in the paper (A.2).
        """
        found = self._of_blanks.baselines(known)
        if "random_next_prob" in known:
            found["nsp_accuracy"] = max(known["random_next_prob"], 1 - known["random_next_prob"])
        return found

    def alarms(
        self, means: Mapping[str, float], baselines: Mapping[str, float], margins: LearningMargins, *, steps: int
    ) -> Iterator[tuple[str, str]]:
        """See `Objective.alarms`. Without weight in the loss, next sentence prediction raises no alarm."""
        yield from self._of_blanks.alarms(means, baselines, margins, steps=steps)
        accuracy, chance = means["nsp_accuracy"], baselines["nsp_accuracy"]
        if self._config.nsp_weight > 0 and accuracy < nsp_learnt_from(chance, margins.nsp_margin):
            yield (
                "nsp_at_chance",
                f"the share of next sentences judged right in the last {steps:,} steps is {accuracy:.3f}; always "
                f"saying the more frequent label gives {chance:g}",
            )


def nsp_learnt_from(chance: float, margin: float) -> float:
    """Return the NSP accuracy that counts as learning: `margin` above a chance of 0.5, less above a higher chance.

    >>> nsp_learnt_from(0.5, 0.02), round(nsp_learnt_from(0.9, 0.02), 6), nsp_learnt_from(1.0, 0.02)
    (0.52, 0.904, 1.0)
    """
    return chance + 2 * (1 - chance) * margin


ADVICE = {
    **mlm.ADVICE,
    "nsp_at_chance": "It comes after the blanks, so wait while the MLM loss is near the unigram entropy. Else see that "
    "documents have several sentences in their order; where text has no order, set objective.nsp_weight=0 "
    "or use objective=mlm with examples=full_sentences.",
}
SHOWING = Showing(
    title="the masked language model and next sentence prediction",
    summary=f"{mlm.SUMMARY}, and it tells the next sentence from a random one in {{nsp_accuracy}} of cases (chance: "
    "{nsp_accuracy_baseline}).",
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
    tables=(
        mlm.LOSS_TABLE,
        ShownTable(name="nsp_accuracy", metric="nsp_accuracy", baseline=None),
    ),
)
