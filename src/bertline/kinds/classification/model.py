"""Classification of texts and pairs, with one label or any number of labels: a linear layer on the pooled [CLS]."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning import temperature as scaling
from bertline.finetuning.encoding import (
    LengthSortedBatches,
    Sequences,
    Windows,
    encode_texts,
    encode_windows,
    outputs_of,
)
from bertline.finetuning.task_kind import (
    Batch,
    Batches,
    Calibration,
    HeadSettings,
    LossOptions,
    Statistics,
    TaskKind,
    paired_columns,
)
from bertline.finetuning.token_marks import NUM_MATCHES, add_marked_types, with_shared_marked
from bertline.kinds.classification.config import ClassificationTaskConfig
from bertline.modeling.losses import focal_factor, sigmoid_divergence, softmax_divergence
from bertline.tasks.metrics import classification as metrics
from bertline.tasks.stored_rows import MultiLabelRows, TextRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine

ClassifiedRows = TypeVar("ClassifiedRows", TextRows, MultiLabelRows)
Probabilities = NDArray[np.float32]
"""[N, labels]."""
THRESHOLD = "threshold"
"""Calibration key of the threshold: labels (of two, the second) with at least this probability are predicted."""


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Encoded rows with their labels."""

    windows: Windows
    labels: NDArray[np.int64]
    """Label ids [N], or 0 and 1 for each label [N, L]."""

    @property
    def sequences(self) -> Sequences:
        """All sequences, one or more per row."""
        return self.windows.sequences


class TextClassifier(TaskKind[ClassifiedRows, EncodedTexts, Probabilities]):
    """Classifies single texts and pairs (paper, section 4.1).

    A long text is truncated or split into windows (`long_texts`). In training, each window has the label of its row and
    is weighted by one over the number of the row's windows, so that a long text counts as much as a short one. In
    prediction, the probabilities of a row's windows are pooled by mean or maximum (arXiv 1905.09217, section 3). A text
    that fits is one window, encoded as with truncation.
    """

    config: ClassificationTaskConfig
    head = "sequence"
    unused_options: ClassVar[dict[str, str]] = {}
    probabilities: Callable[[Tensor], Tensor]
    """Computes the probability of each label from logits [B, labels]."""
    best_temperature: Callable[[Probabilities, NDArray[np.int64]], float]
    """Computes the likeliest temperature from probabilities and labels."""
    with_temperature: Callable[[Probabilities, float], Probabilities]
    """Rescales probabilities as if the logits had been divided by a temperature."""

    def new_model(self, folder: Path, head: HeadSettings) -> nn.Module:
        model: Any = super().new_model(folder, head)
        if self.config.shared_tokens == "marked":
            add_marked_types(model.bert, NUM_MATCHES)
        return model

    def encode(self, rows: ClassifiedRows, tokenizer: Tokenizer) -> EncodedTexts:
        config = self.config
        texts = rows.texts, rows.text_pairs
        if config.long_texts == "windows":
            windows = encode_windows(*texts, tokenizer, max_length=config.max_length, overlap=config.window_overlap)
        else:
            sequences = encode_texts(*texts, tokenizer, max_length=config.max_length)
            windows = Windows(sequences, np.arange(len(rows), dtype=np.int64))
        if config.shared_tokens == "marked":
            windows = Windows(with_shared_marked(windows.sequences, tokenizer), windows.row_starts)
        return EncodedTexts(windows, rows.labels)

    def num_cut(self, encoded: EncodedTexts) -> int:
        return int(encoded.windows.cut.sum())

    def training_batches(self, encoded: EncodedTexts, *, batch_size: int, seed: int) -> Batches:
        """Return batches of windows with their rows' `labels` and `weights` [B], whose mean over all windows is 1."""
        row_of, num_windows = encoded.windows.row_of, encoded.windows.num_windows
        # Not normalized per batch: windows of long texts all have the same length and share batches.
        weights = (1 / num_windows * num_windows.mean())[row_of].astype(np.float32)

        def make(indices: NDArray[np.integer]) -> Batch:
            return {
                **encoded.sequences.batch(indices),
                "labels": torch.from_numpy(encoded.labels[row_of[indices]]),
                "weights": torch.from_numpy(weights[indices]),
            }

        return LengthSortedBatches(encoded.sequences.lengths, make, batch_size=batch_size, seed=seed)

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        return self.loss_of_logits(outputs.float(), batch, options)

    def soft_loss(self, outputs: Tensor, teacher: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Compute the divergence from the teacher's distribution, or from those of several independent labels."""
        divergence = sigmoid_divergence if self.config.multi_label else softmax_divergence
        losses = divergence(outputs.float(), teacher, temperature)
        return (losses.reshape(len(outputs), -1).mean(1) * batch["weights"]).mean()

    @abstractmethod
    def loss_of_logits(self, logits: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean loss from logits [B, labels]."""

    def predict(self, model: nn.Module, encoded: EncodedTexts, machine: Machine) -> Probabilities:
        read = self.probabilities
        return self.pooled(outputs_of(model, encoded.sequences, machine, len(self.labels), read=read), encoded.windows)

    def pooled(self, of_windows: Probabilities, windows: Windows) -> Probabilities:
        """Pool the probabilities of windows [W, labels] to those of rows [N, labels]."""
        if len(windows.row_starts) == len(of_windows):
            return of_windows
        if self.config.window_pooling == "max":
            return np.maximum.reduceat(of_windows, windows.row_starts, axis=0)
        sums = np.add.reduceat(of_windows, windows.row_starts, axis=0)
        return (sums / windows.num_windows[:, None]).astype(np.float32)

    def calibrate(self, rows: ClassifiedRows, predictions: Probabilities) -> Calibration:
        """Fit the temperature on these rows, if configured."""
        fits = self.config.calibration == "temperature"
        return {scaling.TEMPERATURE: self.best_temperature(predictions, rows.labels)} if fits else {}

    def calibrated(self, predictions: Probabilities, calibration: Calibration) -> Probabilities:
        """Apply the temperature chosen on dev, if any. Returns the probabilities that users see."""
        temperature = calibration.get(scaling.TEMPERATURE)
        return predictions if temperature is None else self.with_temperature(predictions, temperature)

    def calibration_errors(
        self, predictions: Probabilities, calibration: Calibration, error: Callable[..., float]
    ) -> dict[str, float]:
        """Return the error of the probabilities without the temperature (`before`) and, if any, with it (`after`)."""
        errors = {"before": error(predictions)}
        if scaling.TEMPERATURE in calibration:
            errors["after"] = error(self.calibrated(predictions, calibration))
        return errors

    def table_of(self, rows: ClassifiedRows, probabilities: Probabilities, **columns: Any) -> pa.Table:
        """See `TaskKind.table`; adds the inputs and the probability of each label to the other columns."""
        of_labels = {f"probability_{label}": probabilities[:, i] for i, label in enumerate(self.labels)}
        return pa.table({**paired_columns(rows), **columns, **of_labels})


class Classification(TextClassifier[TextRows]):
    """Classification with one label per row. The probabilities of a row sum to 1."""

    rows_class = TextRows
    probabilities = staticmethod(partial(torch.softmax, dim=-1))
    best_temperature = staticmethod(scaling.softmax_temperature)
    with_temperature = staticmethod(scaling.with_softmax_temperature)

    def loss_of_logits(self, logits: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute cross-entropy or focal loss; with class weights, the mean is weighted, as in PyTorch."""
        losses = F.cross_entropy(
            logits,
            batch["labels"],
            weight=options.class_weights,
            label_smoothing=options.label_smoothing,
            reduction="none",
        )
        if options.focal_gamma:
            log_probabilities = logits.log_softmax(-1).gather(1, batch["labels"][:, None])[:, 0]
            losses = losses * focal_factor(log_probabilities, options.focal_gamma)
        total = (losses * batch["weights"]).sum()
        if options.class_weights is None:
            return total / len(losses)
        return total / options.class_weights[batch["labels"]].sum()

    def label_counts(self, rows: TextRows) -> NDArray[np.int64]:
        return np.bincount(rows.labels, minlength=len(self.labels))

    def pooled(self, of_windows: Probabilities, windows: Windows) -> Probabilities:
        """See `TextClassifier.pooled`; maxima are normalized to a sum of 1."""
        probabilities = super().pooled(of_windows, windows)
        if self.config.window_pooling == "mean" or len(probabilities) == len(of_windows):
            return probabilities
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def calibrate(self, rows: TextRows, predictions: Probabilities) -> Calibration:
        """Fit the temperature and choose the threshold between two labels, if configured."""
        calibration, metric = super().calibrate(rows, predictions), self.config.threshold_metric
        if metric is None:
            return calibration
        positive = self.calibrated(predictions, calibration)[:, 1]
        threshold = metrics.best_threshold(rows.labels, positive, lambda matrix: self._of_matrix(matrix)[metric])
        return {**calibration, THRESHOLD: threshold}

    def given(self, predictions: Probabilities, calibration: Calibration) -> NDArray[np.int64]:
        """Return the predicted labels [N]: the likeliest or, of two, the second from the threshold of dev on."""
        if THRESHOLD not in calibration:
            return predictions.argmax(axis=1)
        positive = self.calibrated(predictions, calibration)[:, 1].astype(np.float64)
        return (positive >= calibration[THRESHOLD]).astype(np.int64)

    def statistics(self, rows: TextRows, predictions: Probabilities, calibration: Calibration) -> Statistics:
        """Return gold label, predicted label and the probability of each label, [N, 2 + L]."""
        columns = rows.labels, self.given(predictions, calibration), self.calibrated(predictions, calibration)
        return np.column_stack(columns).astype(np.float64)

    def scores(self, statistics: Statistics) -> dict[str, float]:
        """See `scores_of` and `PROBABILITY_SCORES`; macro F1 is over the labels that the rows have."""
        gold, probabilities = statistics[:, 0].astype(np.int64), statistics[:, 2:]
        of_probabilities = {name: of(gold, probabilities) for name, of in metrics.PROBABILITY_SCORES.items()}
        return {**self._of_labels(statistics), **of_probabilities}

    def score(self, statistics: Statistics) -> float:
        """See `TaskKind.score`; the others, which cost more, are left out, as a verdict asks for hundreds."""
        if (of := metrics.PROBABILITY_SCORES.get(self.config.metric)) is not None:
            return of(statistics[:, 0].astype(np.int64), statistics[:, 2:])
        return self._of_labels(statistics)[self.config.metric]

    def _of_labels(self, statistics: Statistics) -> dict[str, float]:
        gold, predicted = statistics[:, :2].astype(np.int64).T
        return self._of_matrix(metrics.confusion_matrix(gold, predicted, len(self.labels)))

    def _of_matrix(self, matrix: NDArray[np.integer]) -> dict[str, float]:
        return {**metrics.scores_of(matrix, beta=self.config.beta), "macro_f1": metrics.macro_f1(matrix, of_gold=True)}

    def table(self, rows: TextRows, predictions: Probabilities, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`; `score` is the probability of the predicted label."""
        predicted = self.given(predictions, calibration)
        predictions = self.calibrated(predictions, calibration)
        return self.table_of(
            rows,
            predictions,
            gold=[self.labels[label] for label in rows.labels],
            predicted=[self.labels[label] for label in predicted],
            score=predictions[np.arange(len(rows)), predicted].astype(np.float64),
            correct=predicted == rows.labels,
        )

    def details(self, rows: TextRows, predictions: Probabilities, calibration: Calibration) -> dict[str, Any]:
        """Return `confusion_matrix` (rows: gold labels) and `calibration_error` of the predicted labels."""
        given = self.given(predictions, calibration)
        matrix = metrics.confusion_matrix(rows.labels, given, len(self.labels))

        def error(probabilities: Probabilities) -> float:
            of_given = probabilities[np.arange(len(given)), given]
            return metrics.expected_calibration_error(of_given, given == rows.labels)

        errors = self.calibration_errors(predictions, calibration, error)
        return {"confusion_matrix": matrix.tolist(), "calibration_error": errors}

    def is_degenerate(self, rows: TextRows, predictions: Probabilities, calibration: Calibration) -> bool:
        """Return whether every row gets the same label."""
        return len(np.unique(self.given(predictions, calibration))) == 1


_DEFAULT_THRESHOLD = 0.5
# Sorted by distance to 0.5, so that ties go to the threshold nearest to it.
_THRESHOLDS = tuple(sorted((step / 20 for step in range(1, 20)), key=lambda t: (abs(t - _DEFAULT_THRESHOLD), t)))


class MultiLabel(TextClassifier[MultiLabelRows]):
    """Classification with any number of labels per row, each decided independently.

    Labels that reach a threshold are predicted: 0.5, unless `calibrate` finds a better one on dev.
    """

    rows_class = MultiLabelRows
    problem_type = "multi_label_classification"
    probabilities = staticmethod(torch.sigmoid)
    best_temperature = staticmethod(scaling.sigmoid_temperature)
    with_temperature = staticmethod(scaling.with_sigmoid_temperature)

    def loss_of_logits(self, logits: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute binary cross-entropy or focal loss, averaged over labels and rows.

        Smoothing moves targets towards 0.5. With class weights, the mean over labels is weighted.
        """
        targets = batch["labels"].to(logits.dtype)
        targets = targets * (1 - options.label_smoothing) + options.label_smoothing / 2
        losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        if options.focal_gamma:
            log_probabilities = F.logsigmoid(torch.where(batch["labels"] == 1, logits, -logits))
            losses = losses * focal_factor(log_probabilities, options.focal_gamma)
        if options.class_weights is None:
            by_row = losses.mean(dim=1)
        else:
            by_row = losses @ options.class_weights / options.class_weights.sum()
        return (by_row * batch["weights"]).sum() / len(by_row)

    def label_counts(self, rows: MultiLabelRows) -> NDArray[np.int64]:
        """See `TaskKind.label_counts`; a row counts once for each of its labels."""
        return rows.labels.sum(axis=0)

    def calibrate(self, rows: MultiLabelRows, predictions: Probabilities) -> Calibration:
        """Fit the temperature, if configured, then the threshold with the best score; 0.5 if no other is better."""
        temperature = super().calibrate(rows, predictions)

        def score(threshold: float) -> float:
            return self.score(self.statistics(rows, predictions, {**temperature, THRESHOLD: threshold}))

        return {**temperature, THRESHOLD: max(_THRESHOLDS, key=score)}

    def given(self, probabilities: Probabilities, calibration: Calibration) -> NDArray[np.int64]:
        """Return the predicted labels [N, L], 0 or 1 each, from calibrated probabilities."""
        return (probabilities >= calibration.get(THRESHOLD, _DEFAULT_THRESHOLD)).astype(np.int64)

    def statistics(self, rows: MultiLabelRows, predictions: Probabilities, calibration: Calibration) -> Statistics:
        """Return gold labels, then predicted labels, 0 or 1 each, [N, 2 L]."""
        given = self.given(self.calibrated(predictions, calibration), calibration)
        return np.concatenate([rows.labels, given], axis=1).astype(np.float64)

    def scores(self, statistics: Statistics) -> dict[str, float]:
        """See `metrics.classification.multi_label_scores`; macro F1 is over the labels that the rows have."""
        gold, given = np.split(statistics.astype(np.int64), 2, axis=1)
        has_rows = gold.any(axis=0)
        macro_f1 = metrics.multi_label_scores(gold[:, has_rows], given[:, has_rows])["macro_f1"]
        return {**metrics.multi_label_scores(gold, given), "macro_f1": macro_f1}

    def table(self, rows: MultiLabelRows, predictions: Probabilities, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`; `score` is the lowest confidence among the row's label decisions."""
        predictions = self.calibrated(predictions, calibration)
        given = self.given(predictions, calibration)
        return self.table_of(
            rows,
            predictions,
            gold=self._names(rows.labels),
            predicted=self._names(given),
            score=np.where(given == 1, predictions, 1 - predictions).min(axis=1).astype(np.float64),
            correct=(given == rows.labels).all(axis=1),
        )

    def details(self, rows: MultiLabelRows, predictions: Probabilities, calibration: Calibration) -> dict[str, Any]:
        """Return `by_label` (F1, precision, recall, number of rows) and `calibration_error` over all labels."""

        def error(probabilities: Probabilities) -> float:
            return metrics.expected_calibration_error(probabilities.ravel(), rows.labels.ravel() == 1)

        given = self.given(self.calibrated(predictions, calibration), calibration)
        return {
            "by_label": metrics.scores_by_label(rows.labels, given, self.labels),
            "calibration_error": self.calibration_errors(predictions, calibration, error),
        }

    def is_degenerate(self, rows: MultiLabelRows, predictions: Probabilities, calibration: Calibration) -> bool:
        """Return whether every row gets the same labels."""
        given = self.given(self.calibrated(predictions, calibration), calibration)
        return bool((given == given[0]).all())

    def _names(self, labels: NDArray[np.int64]) -> list[str]:
        return [", ".join(label for label, has in zip(self.labels, row, strict=True) if has) for row in labels]


def task_kind(config: ClassificationTaskConfig, labels: Sequence[str]) -> Classification | MultiLabel:
    """Return the kind of a task; `labels` are those of its manifest."""
    return MultiLabel(config, labels) if config.multi_label else Classification(config, labels)
