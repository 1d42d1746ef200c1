"""Tagging of words: the accuracy of a softmax over the tags of each word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertline.finetuning.word_tagging import TagPredictions, WordTagger
from bertline.kinds.tagging.config import TaggingTaskConfig
from bertline.tasks.stored_rows import TaggedRows


class Tagging(WordTagger):
    """Predicts a tag for each word."""

    def statistics(
        self, rows: TaggedRows, predictions: TagPredictions, calibration: Mapping[str, float]
    ) -> NDArray[np.float64]:
        """Return for each tag the number of hits, of predicted and of gold words, [N, 3 tags]."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        counts = np.zeros((len(rows), 3, len(self.labels)))
        for row, (tags, predicted) in enumerate(zip(rows.tags, predictions.labels, strict=True)):
            gold = np.array([numbers[tag] for tag in tags], dtype=np.int64)
            for place, found in enumerate((gold[gold == predicted], predicted, gold)):
                counts[row, place] = np.bincount(found, minlength=len(self.labels))
        return counts.reshape(len(rows), -1)

    def scores(self, statistics: NDArray[np.float64]) -> dict[str, float]:
        """Return `accuracy` over words and `macro_f1`, the mean over the tags that occur."""
        by_tag = _by_tag(statistics.sum(axis=0), self.labels)
        gold = sum(scores["support"] for scores in by_tag.values())
        hits = float(statistics[:, : len(self.labels)].sum())
        f1 = [scores["f1"] for scores in by_tag.values()]
        return {"accuracy": hits / gold if gold else 0.0, "macro_f1": float(np.mean(f1)) if f1 else 0.0}

    def details(
        self, rows: TaggedRows, predictions: TagPredictions, calibration: Mapping[str, float]
    ) -> dict[str, Any]:
        """Return precision, recall and F1 of each tag."""
        return {"by_type": _by_tag(self.statistics(rows, predictions, calibration).sum(axis=0), self.labels)}


def _by_tag(counts: NDArray[np.float64], labels: Sequence[str]) -> dict[str, dict[str, float]]:
    return {
        label: {
            "precision": hits / predicted if predicted else 0.0,
            "recall": hits / gold if gold else 0.0,
            "f1": 2 * hits / (predicted + gold),
            "support": int(gold),
        }
        for label, (hits, predicted, gold) in zip(labels, counts.reshape(3, -1).T.tolist(), strict=True)
        if predicted + gold
    }


def task_kind(config: TaggingTaskConfig, labels: Sequence[str]) -> Tagging:
    """Return the kind of a task; `labels` are those of its manifest."""
    return Tagging(config, labels)
