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
            LossTerm(name="mlm_loss", count="targets", weight=1.0),
            LossTerm(name="nsp_loss", count="sequences", weight=config.nsp_weight),
        )
        self.metrics = (
            Metric(name="mlm_accuracy", total="mlm_correct", count="targets"),
            Metric(name="nsp_accuracy", total="nsp_correct", count="sequences"),
        )
        self.judged_by = "mlm_loss"
        self.advice: Mapping[str, str] = ADVICE
        self.showing = SHOWING
        self._config = config

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

    def baselines(self, known: Mapping[str, Any]) -> dict[str, float]:
        """Return the unigram entropy, and the accuracy of always predicting the more frequent label.

        That accuracy is 0.5 if both labels are equally frequent, as in the paper (A.2).
        """
        found = {}
        if "unigram_entropy" in known:
            found["mlm_loss"] = known["unigram_entropy"]
        if "random_next_prob" in known:
            found["nsp_accuracy"] = max(known["random_next_prob"], 1 - known["random_next_prob"])
        return found

    def alarms(
        self, means: Mapping[str, float], baselines: Mapping[str, float], margins: LearningMargins, *, steps: int
    ) -> Iterator[tuple[str, str]]:
        """See `Objective.alarms`. Without weight in the loss, next sentence prediction raises no alarm."""
        loss, entropy = means["mlm_loss"], baselines["mlm_loss"]
        if loss > entropy - margins.entropy_margin:
            yield (
                "unigram_entropy",
                f"the MLM loss of the last {steps:,} steps is {loss:.2f} nats; guessing blanks by frequency "
                f"alone gives {entropy:.2f}",
            )
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
    "unigram_entropy": "A large model may stay here for some thousand steps. Else raise optimizer.lr or the batch, "
    "try optimizer=muon_short, or short sequences first (examples.lengths=[16,64] and two pretrain.phases), and see "
    "that the text is in order.",
    "nsp_at_chance": "It comes after the blanks, so wait while the MLM loss is near the unigram entropy. Else see that "
    "documents have several sentences in their order; where text has no order, set objective.nsp_weight=0.",
}
SHOWING = Showing(
    title="the masked language model and next sentence prediction",
    summary="On held-out text it fills {mlm_accuracy} of the blanks with exactly the right token. Its loss of "
    "{mlm_loss} nats is {mlm_loss_margin} the {mlm_loss_baseline} of guessing by frequency alone, and it tells the "
    "next sentence from a random one in {nsp_accuracy} of cases (chance: {nsp_accuracy_baseline}).",
    scores=(
        ShownScore(
            metric="mlm_loss",
            unit="nats",
            tile="MLM loss, nats",
            tile_note="by frequency alone {baseline}",
            card="masked language model, loss (nats)",
            card_baseline="guessing by frequency (nats)",
            figure="unigram_entropy",
        ),
        ShownScore(
            metric="mlm_accuracy",
            unit="fraction",
            tile="blanks filled right",
            tile_note="one of {vocab_size}",
            card="masked language model, accuracy",
        ),
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
        ShownChart(
            name="mlm_loss",
            y_name="MLM loss, nats",
            caption="The loss of filling blanks. Below the dashed line the model uses the words around a blank, not "
            "only how frequent each word is.",
            curves=(
                ShownCurve(title="training", metric="train/mlm_loss", css="c1"),
                ShownCurve(title="held-out", metric="val/mlm_loss", css="c0"),
            ),
            level=("frequency alone", "mlm_loss"),
        ),
        ShownChart(
            name="accuracy",
            y_name="held-out accuracy",
            caption="The share of blanks filled with exactly the right token, and of sentence pairs judged right.",
            curves=(
                ShownCurve(title="blanks filled right", metric="val/mlm_accuracy", css="c0"),
                ShownCurve(title="next sentence right", metric="val/nsp_accuracy", css="c1"),
            ),
            level=("chance, next sentence", "nsp_accuracy"),
        ),
    ),
    tables=(
        ShownTable(name="mlm_loss", metric="mlm_loss", baseline="unigram"),
        ShownTable(name="nsp_accuracy", metric="nsp_accuracy", baseline=None),
    ),
)
