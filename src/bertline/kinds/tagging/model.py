"""Tagging of words: the accuracy of a softmax over the tags of each word."""

from __future__ import annotations

from typing import Any

import numpy as np

from bertline.finetuning.task_kind import Calibration, Statistics
from bertline.finetuning.word_tagging import TagPredictions, WordTagger
from bertline.tasks.metrics.classification import counts_by_label, row_counts, scores_of_counts
from bertline.tasks.stored_rows import TaggedRows


class Tagging(WordTagger):
    """Predicts a tag for each word."""

    def statistics(self, rows: TaggedRows, predictions: TagPredictions, calibration: Calibration) -> Statistics:
        """Return for each tag the number of hits, of predicted and of gold words, [N, 3 tags]."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        counts = [
            row_counts(np.array([numbers[tag] for tag in tags], dtype=np.int64), predicted, len(self.labels))
            for tags, predicted in zip(rows.tags, predictions.labels, strict=True)
        ]
        return np.array(counts).reshape(len(rows), 3 * len(self.labels))

    def scores(self, statistics: Statistics) -> dict[str, float]:
        return scores_of_counts(statistics)

    def details(self, rows: TaggedRows, predictions: TagPredictions, calibration: Calibration) -> dict[str, Any]:
        """Return precision, recall and F1 of each tag."""
        return {"by_type": counts_by_label(self.statistics(rows, predictions, calibration), self.labels)}


task_kind = Tagging
