"""Multi-label classification: any number of labels per row, each decided independently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.task_kind import Batch, Calibration, LossOptions
from bertline.finetuning.temperature import TEMPERATURE, sigmoid_temperature, with_sigmoid_temperature
from bertline.kinds.classification.text_classifier import TextClassifier
from bertline.modeling.huggingface import save_model
from bertline.tasks.metrics import classification as metrics
from bertline.tasks.metrics.classification import expected_calibration_error
from bertline.tasks.stored_rows import MultiLabelRows

THRESHOLD = "threshold"
"""Calibration key of the threshold: labels with at least this probability are predicted."""
_DEFAULT_THRESHOLD = 0.5
# Sorted by distance to 0.5, so that ties go to the threshold nearest to it.
_THRESHOLDS = tuple(sorted((step / 20 for step in range(1, 20)), key=lambda t: (abs(t - _DEFAULT_THRESHOLD), t)))


class MultiLabel(TextClassifier[MultiLabelRows]):
    """Classification with any number of labels per row. Predictions are independent probabilities [N, labels].

    Labels that reach a threshold are predicted: 0.5, unless `calibrate` finds a better one on dev.
    """

    rows_class = MultiLabelRows

    def save_model(self, model: nn.Module, folder: Path) -> None:
        """See `TaskKind.save_model`."""
        save_model(model, folder, id2label=dict(enumerate(self.labels)), problem_type="multi_label_classification")

    def loss_of_logits(self, logits: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute binary cross-entropy, averaged over labels and rows; smoothing moves targets towards 0.5.

        With class weights, the mean over labels is weighted.
        """
        targets = batch["labels"].to(logits.dtype)
        targets = targets * (1 - options.label_smoothing) + options.label_smoothing / 2
        losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        if options.class_weights is None:
            by_row = losses.mean(dim=1)
        else:
            by_row = losses @ options.class_weights / options.class_weights.sum()
        return (by_row * batch["weights"]).sum() / len(by_row)

    def label_counts(self, rows: MultiLabelRows) -> NDArray[np.int64]:
        """See `TaskKind.label_counts`; a row counts once for each of its labels."""
        return rows.labels.sum(axis=0)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Compute the sigmoid of each logit."""
        return torch.sigmoid(logits)

    def calibrate(self, rows: MultiLabelRows, predictions: NDArray[np.float32]) -> Calibration:
        """Fit the temperature, if configured, then the threshold with the best score; 0.5 if no other is better."""
        temperature: Calibration = {}
        if self.config.calibration == "temperature":
            temperature = {TEMPERATURE: sigmoid_temperature(predictions, rows.labels)}

        def score(threshold: float) -> float:
            return self.scores(self.statistics(rows, predictions, {**temperature, THRESHOLD: threshold}))[
                self.config.metric
            ]

        return {**temperature, THRESHOLD: max(_THRESHOLDS, key=score)}

    def with_temperature(self, probabilities: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
        """See `TextClassifier.with_temperature`."""
        return with_sigmoid_temperature(probabilities, temperature)

    def statistics(
        self, rows: MultiLabelRows, predictions: NDArray[np.float32], calibration: Calibration
    ) -> NDArray[np.float64]:
        """Return gold labels, then predicted labels, 0 or 1 each, [N, 2 L]."""
        given = _given(self.calibrated(predictions, calibration), calibration)
        return np.concatenate([rows.labels, given], axis=1).astype(np.float64)

    def scores(self, statistics: NDArray[np.float64]) -> dict[str, float]:
        """See `metrics.classification.multi_label_scores`."""
        gold, given = np.split(statistics.astype(np.int64), 2, axis=1)
        return metrics.multi_label_scores(gold, given)

    def table(self, rows: MultiLabelRows, predictions: NDArray[np.float32], calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`; `score` is the lowest confidence among the row's label decisions."""
        predictions = self.calibrated(predictions, calibration)
        given = _given(predictions, calibration)
        return pa.table(
            {
                "id": rows.ids,
                "text": rows.texts,
                "text_pair": pa.nulls(len(rows), pa.string()) if rows.text_pairs is None else rows.text_pairs,
                "gold": self._names(rows.labels),
                "predicted": self._names(given),
                "score": np.where(given == 1, predictions, 1 - predictions).min(axis=1).astype(np.float64),
                "correct": (given == rows.labels).all(axis=1),
                **{f"probability_{label}": predictions[:, i] for i, label in enumerate(self.labels)},
            }
        )

    def details(
        self, rows: MultiLabelRows, predictions: NDArray[np.float32], calibration: Calibration
    ) -> dict[str, Any]:
        """Return `by_label` (F1, precision, recall, number of rows) and `calibration_error` over all labels."""

        def error(probabilities: NDArray[np.float32]) -> float:
            return expected_calibration_error(probabilities.ravel(), rows.labels.ravel() == 1)

        given = _given(self.calibrated(predictions, calibration), calibration)
        return {
            "by_label": metrics.scores_by_label(rows.labels, given, self.labels),
            "calibration_error": self.calibration_errors(predictions, calibration, error),
        }

    def is_degenerate(self, rows: MultiLabelRows, predictions: NDArray[np.float32], calibration: Calibration) -> bool:
        """Return whether every row gets the same labels."""
        given = _given(self.calibrated(predictions, calibration), calibration)
        return bool((given == given[0]).all())

    def _names(self, labels: NDArray[np.int64]) -> list[str]:
        return [", ".join(label for label, has in zip(self.labels, row, strict=True) if has) for row in labels]


def _given(predictions: NDArray[np.float32], calibration: Calibration) -> NDArray[np.int64]:
    """Return the predicted labels [N, L], 0 or 1 each."""
    return (predictions >= calibration.get(THRESHOLD, _DEFAULT_THRESHOLD)).astype(np.int64)
