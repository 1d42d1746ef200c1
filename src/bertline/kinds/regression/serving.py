"""Regression of texts and text pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bertline.foundation.errors import DataError
from bertline.inference.predictor import TextPredictor, row_ids
from bertline.tasks.stored_rows import NumberRows

LABEL_COLUMN = "predicted"


class RegressionPredictor(TextPredictor):
    """Regression of a number for each text or text pair."""

    def predict(  # type: ignore[override]
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[float]:
        """Return the number of each text or text pair, on the task's scale.

        Raises:
            DataError: The head is `cosine`, and there are no `text_pairs`.
        """
        firsts, seconds = self.texts_and_pairs(texts, text_pairs)
        if self.kind.config.head == "cosine" and seconds is None:
            raise DataError("this model compares two texts; give text_pairs (in a file: text_pair_column) too.")
        if not firsts:
            return []
        unknown = np.zeros(len(firsts), dtype=np.float64)
        return self.predictions(NumberRows(row_ids(len(firsts)), firsts, seconds, unknown)).tolist()

    def output_schema(self) -> pa.Schema:
        return pa.schema([(LABEL_COLUMN, pa.float64())])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return [{LABEL_COLUMN: number} for number in self.predict(*inputs)]


predictor = RegressionPredictor
