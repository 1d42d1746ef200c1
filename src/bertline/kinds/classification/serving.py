"""Classification and multi-label classification of texts and text pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import nn

from bertline.finetuning.task_kind import Calibration
from bertline.inference.predictor import TaskPredictor, TextPredictor, row_ids
from bertline.kinds.classification.model import THRESHOLD, MultiLabel
from bertline.tasks.stored_rows import MultiLabelRows, TextRows
from bertline.tokenization.tokenizer import Tokenizer

LABEL_COLUMN = "predicted"
PROBABILITY_COLUMN = "probability"
PROBABILITIES_COLUMN = "probabilities"
_PROBABILITIES = pa.list_(pa.struct([("label", pa.string()), ("probability", pa.float64())]))


class Prediction(NamedTuple):
    """Predicted label of a text."""

    label: str
    probability: float
    probabilities: dict[str, float]
    """Probability of each label, in label order."""


class LabelsPrediction(NamedTuple):
    """Predicted labels of a text, from a multi-label classifier."""

    labels: tuple[str, ...]
    """Labels that reach the threshold, in label order; may be empty."""
    probabilities: dict[str, float]
    """Probability of each label; they do not sum to 1."""


class _LabelPredictor(TextPredictor):
    """Base class of classification tasks."""

    def listed(self, probabilities: NDArray[np.floating]) -> list[dict[str, Any]]:
        """List the labels of a row with their probabilities, most likely first, up to `num_probabilities`."""
        order = np.argsort(-probabilities, kind="stable")[: self.num_probabilities]
        return [{"label": self.kind.labels[label], "probability": float(probabilities[label])} for label in order]


class ClassificationPredictor(_LabelPredictor):
    """Classification with one label per text."""

    def predict(  # type: ignore[override]
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[Prediction]:
        """Return the most likely label of each text or text pair."""
        labels = self.kind.labels
        probabilities = self.probabilities(texts, text_pairs)
        return [
            Prediction(labels[best], float(row[best]), dict(zip(labels, row.tolist(), strict=True)))
            for row, best in zip(probabilities, probabilities.argmax(1), strict=True)
        ]

    def probabilities(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> NDArray[np.float32]:
        """Return the calibrated probabilities [n, labels]."""
        firsts, seconds = self.texts_and_pairs(texts, text_pairs)
        if not firsts:
            return np.zeros((0, len(self.kind.labels)), dtype=np.float32)
        unlabelled = np.zeros(len(firsts), dtype=np.int64)
        found = self.predictions(TextRows(row_ids(len(firsts)), firsts, seconds, unlabelled))
        return self.kind.calibrated(found, self.calibration)

    def output_schema(self) -> pa.Schema:
        return pa.schema(
            [(LABEL_COLUMN, pa.string()), (PROBABILITY_COLUMN, pa.float64()), (PROBABILITIES_COLUMN, _PROBABILITIES)]
        )

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        probabilities = self.probabilities(*inputs)
        best = probabilities.argmax(1)
        return [
            {
                LABEL_COLUMN: self.kind.labels[label],
                PROBABILITY_COLUMN: float(row[label]),
                PROBABILITIES_COLUMN: self.listed(row),
            }
            for label, row in zip(best, probabilities, strict=True)
        ]


class MultiLabelPredictor(_LabelPredictor):
    """Classification with any number of labels per text."""

    def predict(  # type: ignore[override]
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[LabelsPrediction]:
        """Return the labels of each text or text pair that reach the threshold chosen on dev."""
        firsts, seconds = self.texts_and_pairs(texts, text_pairs)
        if not firsts:
            return []
        labels = self.kind.labels
        unlabelled = np.zeros((len(firsts), len(labels)), dtype=np.int64)
        found = self.predictions(MultiLabelRows(row_ids(len(firsts)), firsts, seconds, unlabelled))
        probabilities = self.kind.calibrated(found, self.calibration)
        threshold = self.calibration.get(THRESHOLD, 0.5)
        return [
            LabelsPrediction(
                tuple(label for label, given in zip(labels, row >= threshold, strict=True) if given),
                dict(zip(labels, row.tolist(), strict=True)),
            )
            for row in probabilities
        ]

    def output_schema(self) -> pa.Schema:
        return pa.schema(
            [
                (LABEL_COLUMN, pa.list_(pa.string())),
                (PROBABILITY_COLUMN, pa.list_(pa.float64())),
                (PROBABILITIES_COLUMN, _PROBABILITIES),
            ]
        )

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return [
            {
                LABEL_COLUMN: list(found.labels),
                PROBABILITY_COLUMN: [found.probabilities[x] for x in found.labels],
                PROBABILITIES_COLUMN: self.listed(np.array([*found.probabilities.values()])),
            }
            for found in self.predict(*inputs)
        ]


def predictor(kind: Any, calibration: Calibration, model: nn.Module, tokenizer: Tokenizer) -> TaskPredictor:
    """Return the predictor on user inputs."""
    made = MultiLabelPredictor if isinstance(kind, MultiLabel) else ClassificationPredictor
    return made(kind, calibration, model, tokenizer)
