"""Regression of a number for a text or a pair: one output on the pooled [CLS], or the cosine of two text vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.encoders.loading import Head
from bertline.finetuning.encoding import LengthSortedBatches, Sequences, encode_texts, outputs_of
from bertline.finetuning.task_kind import Batch, Batches, Calibration, LossOptions, Statistics, TaskKind, paired_columns
from bertline.foundation.errors import DataError
from bertline.kinds.regression.config import RegressionTaskConfig
from bertline.modeling.bert import BertModel
from bertline.tasks.metrics.correlation import pearson, spearman
from bertline.tasks.stored_rows import NumberRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine

# Fraction of the scale: predictions within a smaller range count as equal.
_DEGENERATE_SPREAD = 1e-3


@dataclass(frozen=True, slots=True)
class EncodedNumbers:
    """Encoded rows with their target numbers."""

    sequences: Sequences
    """N sequences; for the cosine head 2 N: all first texts, then all second texts."""
    targets: NDArray[np.float32]
    """Target numbers [N], scaled from 0 (the task's `low`) to 1 (its `high`)."""


class Regression(TaskKind[NumberRows, EncodedNumbers, NDArray[np.float64]]):
    """Regression of one number per row. Predictions are [N], on the task's scale.

    The `linear` head is trained with squared error on targets scaled to [0, 1]; its predictions are clipped to the
    scale. The `cosine` head has no weights: each text is encoded separately, the cosine of the two vectors is trained
    with squared error towards the scaled target (arXiv 1908.10084, section 3, regression objective), and a prediction
    is `low + (high - low) * cosine`, which keeps the order and may be below `low`.
    """

    rows_class = NumberRows
    config: RegressionTaskConfig
    outputs = ("number",)
    problem_type = "regression"

    @property
    def head(self) -> Head:  # type: ignore[override]
        return "vectors" if self.config.head == "cosine" else "sequence"

    @property
    def _scale(self) -> tuple[float, float]:
        """Number for which the model's output is 0, and how much more it is where the output is 1."""
        return (0.0, 1.0) if math.isinf(self.config.high) else (self.config.low, self.config.high - self.config.low)

    @property
    def unused_options(self) -> dict[str, str]:
        return {**super().unused_options, "label_smoothing": "it has numbers, and no labels to smooth"}

    def encode(self, rows: NumberRows, tokenizer: Tokenizer) -> EncodedNumbers:
        """See `TaskKind.encode`.

        Raises:
            DataError: The head is `cosine`, but the rows have no second texts.
        """
        max_length = self.config.max_length
        if self.config.head == "cosine":
            if rows.text_pairs is None:
                raise DataError(
                    "head: cosine compares two texts, and these rows have one. Name source.text_pair_column and run "
                    "the stage task_data again, or take head: linear."
                )
            sequences = encode_texts([*rows.texts, *rows.text_pairs], None, tokenizer, max_length=max_length)
        else:
            sequences = encode_texts(rows.texts, rows.text_pairs, tokenizer, max_length=max_length)
        low, width = self._scale
        return EncodedNumbers(sequences, ((rows.numbers - low) / width).astype(np.float32))

    def num_cut(self, encoded: EncodedNumbers) -> int:
        texts_of_a_row = np.split(encoded.sequences.cut, 2 if self.config.head == "cosine" else 1)
        return int(np.any(texts_of_a_row, axis=0).sum())

    def training_batches(self, encoded: EncodedNumbers, *, batch_size: int, seed: int) -> Batches:
        """Return batches of rows; for the cosine head, a batch has all first texts, then all second texts."""
        num_rows = len(encoded.targets)
        lengths = encoded.sequences.lengths.reshape(-1, num_rows).max(axis=0)

        def make(rows: NDArray[np.integer]) -> Batch:
            indices = rows if len(encoded.sequences) == num_rows else np.concatenate([rows, rows + num_rows])
            return {**encoded.sequences.batch(indices), "targets": torch.from_numpy(encoded.targets[rows])}

        return LengthSortedBatches(lengths, make, batch_size=batch_size, seed=seed)

    def training_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the scaled number of each row, [B]."""
        outputs: Tensor = super().training_outputs(model, batch).float()
        if self.config.head == "cosine":
            return F.cosine_similarity(*outputs.chunk(2), dim=-1)
        return outputs.squeeze(-1)

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean squared error of targets scaled to [0, 1]."""
        return F.mse_loss(outputs, batch["targets"])

    def soft_targets(self, model: nn.Module, encoded: EncodedNumbers, machine: Machine) -> NDArray[np.float32]:
        """Return the scaled number of each row, [N]."""
        low, width = self._scale
        return ((self.predict(model, encoded, machine) - low) / width).astype(np.float32)

    def soft_loss(self, outputs: Tensor, teacher: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Compute the mean squared error towards the teacher's numbers; no temperature softens them."""
        return F.mse_loss(outputs, teacher)

    def predict(self, model: nn.Module, encoded: EncodedNumbers, machine: Machine) -> NDArray[np.float64]:
        is_cosine = self.config.head == "cosine"
        width = cast(BertModel, model.bert).config.hidden_size if is_cosine else 1
        outputs = outputs_of(model, encoded.sequences, machine, width).astype(np.float64)
        if is_cosine:
            first, second = outputs.reshape(2, len(encoded.targets), -1)
            norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
            shares = (first * second).sum(axis=1) / np.maximum(norms, 1e-12)
        else:
            shares = outputs[:, 0] if math.isinf(self.config.high) else outputs[:, 0].clip(0.0, 1.0)
        low, span = self._scale
        return low + span * shares

    def statistics(self, rows: NumberRows, predictions: NDArray[np.float64], calibration: Calibration) -> Statistics:
        """Return gold and predicted number, [N, 2]."""
        return np.stack([rows.numbers, predictions], axis=1)

    def scores(self, statistics: Statistics) -> dict[str, float]:
        """Return `pearson` and `spearman`, -1 to 1."""
        gold, predicted = statistics.T
        return {"pearson": pearson(gold, predicted), "spearman": spearman(gold, predicted)}

    def table(self, rows: NumberRows, predictions: NDArray[np.float64], calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`. Regression has no confidence: `score` is the absolute error as a fraction of the scale,
        and `correct` is 1 minus it."""
        distances = np.abs(predictions - rows.numbers) / self._scale[1]
        return pa.table(
            {
                **paired_columns(rows),
                "gold": [f"{number:.3f}" for number in rows.numbers],
                "predicted": [f"{number:.3f}" for number in predictions],
                "score": distances,
                "correct": 1 - distances,
                "gold_number": rows.numbers,
                "predicted_number": predictions,
            }
        )

    def details(self, rows: NumberRows, predictions: NDArray[np.float64], calibration: Calibration) -> dict[str, Any]:
        """Return `mean_absolute_error` on the task's scale; lower is better."""
        return {"mean_absolute_error": float(np.abs(predictions - rows.numbers).mean())}

    def is_degenerate(self, rows: NumberRows, predictions: NDArray[np.float64], calibration: Calibration) -> bool:
        """Return whether all predictions lie within a thousandth of the scale."""
        return bool(np.ptp(predictions) < _DEGENERATE_SPREAD * self._scale[1])


task_kind = Regression
