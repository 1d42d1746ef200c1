"""Classification of single texts and pairs, one label per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bertline.finetuning.encoding import Windows
from bertline.finetuning.task_kind import Batch, Calibration, LossOptions
from bertline.finetuning.temperature import TEMPERATURE, softmax_temperature, with_softmax_temperature
from bertline.kinds.classification.config import ClassificationTaskConfig
from bertline.kinds.classification.multi_label import MultiLabel
from bertline.kinds.classification.text_classifier import TextClassifier
from bertline.tasks.metrics import classification as metrics
from bertline.tasks.metrics.classification import expected_calibration_error
from bertline.tasks.stored_rows import TextRows


class Classification(TextClassifier[TextRows]):
    """Classification with one label per row. Predictions are probabilities [N, labels], which sum to 1."""

    rows_class = TextRows

    def loss_of_logits(self, logits: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute cross-entropy; with class weights, the mean is weighted, as in PyTorch."""
        losses = F.cross_entropy(
            logits,
            batch["labels"],
            weight=options.class_weights,
            label_smoothing=options.label_smoothing,
            reduction="none",
        )
        total = (losses * batch["weights"]).sum()
        if options.class_weights is None:
            return total / len(losses)
        return total / options.class_weights[batch["labels"]].sum()

    def label_counts(self, rows: TextRows) -> NDArray[np.int64]:
        """See `TaskKind.label_counts`."""
        return np.bincount(rows.labels, minlength=len(self.labels))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Compute the softmax over the labels."""
        return torch.softmax(logits, dim=-1)

    def pooled(self, of_windows: NDArray[np.float32], windows: Windows) -> NDArray[np.float32]:
        """See `TextClassifier.pooled`; maxima are normalized to a sum of 1."""
        probabilities = super().pooled(of_windows, windows)
        if self.config.window_pooling == "mean" or len(probabilities) == len(of_windows):
            return probabilities
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def with_temperature(self, probabilities: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
        """See `TextClassifier.with_temperature`."""
        return with_softmax_temperature(probabilities, temperature)

    def calibrate(self, rows: TextRows, predictions: NDArray[np.float32]) -> Calibration:
        """Fit the temperature on these rows, if configured."""
        if self.config.calibration == "none":
            return {}
        return {TEMPERATURE: softmax_temperature(predictions, rows.labels)}

    def statistics(
        self, rows: TextRows, predictions: NDArray[np.float32], calibration: Calibration
    ) -> NDArray[np.float64]:
        """Return gold and predicted label, [N, 2]."""
        return np.stack([rows.labels, predictions.argmax(axis=1)], axis=1).astype(np.float64)

    def scores(self, statistics: NDArray[np.float64]) -> dict[str, float]:
        """See `metrics.classification.scores_of`."""
        gold, predicted = statistics.astype(np.int64).T
        return metrics.scores_of(metrics.confusion_matrix(gold, predicted, len(self.labels)))

    def table(self, rows: TextRows, predictions: NDArray[np.float32], calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`; `score` is the probability of the predicted label."""
        predicted = predictions.argmax(axis=1)
        predictions = self.calibrated(predictions, calibration)
        return pa.table(
            {
                "id": rows.ids,
                "text": rows.texts,
                "text_pair": pa.nulls(len(rows), pa.string()) if rows.text_pairs is None else rows.text_pairs,
                "gold": [self.labels[label] for label in rows.labels],
                "predicted": [self.labels[label] for label in predicted],
                "score": predictions[np.arange(len(rows)), predicted].astype(np.float64),
                "correct": predicted == rows.labels,
                **{f"probability_{label}": predictions[:, i] for i, label in enumerate(self.labels)},
            }
        )

    def details(self, rows: TextRows, predictions: NDArray[np.float32], calibration: Calibration) -> dict[str, Any]:
        """Return `confusion_matrix` (rows: gold labels) and `calibration_error` of the predicted labels."""
        given = predictions.argmax(axis=1)
        matrix = metrics.confusion_matrix(rows.labels, given, len(self.labels))

        def error(probabilities: NDArray[np.float32]) -> float:
            of_given = probabilities[np.arange(len(given)), given]
            return expected_calibration_error(of_given, given == rows.labels)

        errors = self.calibration_errors(predictions, calibration, error)
        return {"confusion_matrix": matrix.tolist(), "calibration_error": errors}

    def is_degenerate(self, rows: TextRows, predictions: NDArray[np.float32], calibration: Calibration) -> bool:
        """Return whether every row gets the same label."""
        return len(np.unique(predictions.argmax(axis=1))) == 1


def task_kind(config: ClassificationTaskConfig, labels: Sequence[str]) -> Classification | MultiLabel:
    """Return the kind of a task; `labels` are those of its manifest."""
    return MultiLabel(config, labels) if config.multi_label else Classification(config, labels)
