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

    label_type: pa.DataType
    """Type of the predicted label in a file."""
    probability_type: pa.DataType
    """Type of its probability."""

    def probabilities(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> NDArray[np.float32]:
        """Return the calibrated probabilities [n, labels]."""
        firsts, seconds = self.texts_and_pairs(texts, text_pairs)
        # The labels of the rows are not read.
        nothing = np.zeros((len(firsts), len(self.kind.labels)), dtype=np.float32)
        if not firsts:
            return nothing
        predictions = self.predictions(
            self.kind.rows_class(row_ids(len(firsts)), firsts, seconds, nothing.astype(np.int64))
        )
        return self.kind.calibrated(predictions, self.calibration)

    def output_schema(self) -> pa.Schema:
        return pa.schema(
            [
                (LABEL_COLUMN, self.label_type),
                (PROBABILITY_COLUMN, self.probability_type),
                (PROBABILITIES_COLUMN, _PROBABILITIES),
            ]
        )

    def listed(self, probabilities: dict[str, float]) -> list[dict[str, Any]]:
        """List the labels of a row with their probabilities, most likely first, up to `num_probabilities`."""
        ordered = sorted(probabilities.items(), key=lambda each: -each[1])[: self.num_probabilities]
        return [{"label": label, "probability": probability} for label, probability in ordered]


class ClassificationPredictor(_LabelPredictor):
    """Classification with one label per text."""

    label_type, probability_type = pa.string(), pa.float64()

    def predict(  # type: ignore[override]
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[Prediction]:
        """Return the most likely label of each text or text pair, or by the threshold chosen on dev, if any."""
        labels = self.kind.labels
        probabilities = self.probabilities(texts, text_pairs)  # with the temperature, so that the threshold is left
        chosen = {key: value for key, value in self.calibration.items() if key == THRESHOLD}
        return [
            Prediction(labels[best], float(row[best]), dict(zip(labels, row.tolist(), strict=True)))
            for row, best in zip(probabilities, self.kind.given(probabilities, chosen), strict=True)
        ]

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return [
            {
                LABEL_COLUMN: found.label,
                PROBABILITY_COLUMN: found.probability,
                PROBABILITIES_COLUMN: self.listed(found.probabilities),
            }
            for found in self.predict(*inputs)
        ]


class MultiLabelPredictor(_LabelPredictor):
    """Classification with any number of labels per text."""

    label_type, probability_type = pa.list_(pa.string()), pa.list_(pa.float64())

    def predict(  # type: ignore[override]
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[LabelsPrediction]:
        """Return the labels of each text or text pair that reach the threshold chosen on dev."""
        labels, threshold = self.kind.labels, self.calibration.get(THRESHOLD, 0.5)
        return [
            LabelsPrediction(
                tuple(label for label, given in zip(labels, row >= threshold, strict=True) if given),
                dict(zip(labels, row.tolist(), strict=True)),
            )
            for row in self.probabilities(texts, text_pairs)
        ]

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return [
            {
                LABEL_COLUMN: list(found.labels),
                PROBABILITY_COLUMN: [found.probabilities[x] for x in found.labels],
                PROBABILITIES_COLUMN: self.listed(found.probabilities),
            }
            for found in self.predict(*inputs)
        ]


def predictor(kind: Any, calibration: Calibration, model: nn.Module, tokenizer: Tokenizer) -> TaskPredictor:
    """Return the predictor on user inputs."""
    made = MultiLabelPredictor if isinstance(kind, MultiLabel) else ClassificationPredictor
    return made(kind, calibration, model, tokenizer)
