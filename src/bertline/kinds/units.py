"""Labels of units: what the kinds share that give each word or each sentence of a row a label of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertline.kinds.base import Calibration, EncodedRows, Predictions, Statistics, TaskKind, TaskRows
from bertline.kinds.html import escape, quote, sureness
from bertline.tasks.metrics.classification import counts_by_label, counts_of_rows, scores_of_counts


class UnitLabelling(TaskKind[TaskRows, EncodedRows, Predictions]):
    """Predicts a label for each unit of a row; scores count units."""

    # Most units of a row are labelled correctly, so a single wrong one makes the row an error.
    right_from = 1.0
    head = "tokens"
    unweighted = ""

    @abstractmethod
    def gold(self, rows: TaskRows) -> list[NDArray[np.int64]]:
        """Return the label ids of each row's units."""

    @abstractmethod
    def given(self, predictions: Predictions, calibration: Calibration) -> list[NDArray[np.int64]]:
        """Return the predicted label ids of each row's units."""

    def label_counts(self, rows: TaskRows) -> NDArray[np.int64]:
        return np.bincount(np.concatenate(self.gold(rows)), minlength=len(self.labels))

    def statistics(self, rows: TaskRows, predictions: Predictions, calibration: Calibration) -> Statistics:
        """Return for each label the number of hits, of predicted and of gold units, [N, 3 labels]."""
        return counts_of_rows(self.gold(rows), self.given(predictions, calibration), len(self.labels))

    def scores(self, statistics: Statistics) -> dict[str, float]:
        return scores_of_counts(statistics)

    def details(self, rows: TaskRows, predictions: Predictions, calibration: Calibration) -> dict[str, Any]:
        """Return precision, recall and F1 of each label."""
        return {"by_type": counts_by_label(self.statistics(rows, predictions, calibration), self.labels)}

    def is_degenerate(self, rows: TaskRows, predictions: Predictions, calibration: Calibration) -> bool:
        return len({label for labels in self.given(predictions, calibration) for label in labels.tolist()}) <= 1

    def shares_right(self, rows: TaskRows, given: Iterable[NDArray[np.int64]]) -> list[float]:
        """Return the share of each row's units with the right label."""
        return [float(np.mean(gold == labels)) for gold, labels in zip(self.gold(rows), given, strict=True)]

    @staticmethod
    def error_block(error: dict[str, Any]) -> str:
        """Return the HTML of a row whose wrong units are marked."""

        def unit(text: str, gold: str, predicted: str) -> str:
            if gold == predicted:
                return f"<span>{escape(text)}</span>"
            return f'<mark class="wrong">{escape(text)}<small>{escape(predicted)}, is {escape(gold)}</small></mark>'

        labels = (each.split(" ") if isinstance(each, str) else each for each in (error["gold"], error["predicted"]))
        shown = zip(error.get("sentences") or error["words"], *labels, strict=False)  # long lists are cut
        return quote(f'<p class="tagged">{" ".join(unit(*each) for each in shown)}</p>', sureness(error).strip("()"))

    def names(self, labels: Sequence[NDArray[np.int64]]) -> list[list[str]]:
        """Return the labels of each row's units."""
        return [[self.labels[number] for number in numbers] for numbers in labels]
