"""Re-ranking of candidates with a cross-encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bertline.foundation.errors import DataError
from bertline.inference.predictor import FileColumns, InputColumn, TaskPredictor, require_lists, require_texts, row_ids
from bertline.tasks.stored_rows import CandidateRows


class Ranked(NamedTuple):
    """Candidate in a ranking."""

    number: int
    """Index among the given candidates, from 0."""
    text: str
    score: float


class RerankingPredictor(TaskPredictor):
    """Re-ranking of the candidates of each query."""

    def predict(  # type: ignore[override]
        self, queries: Sequence[str], candidates: Sequence[Sequence[str]]
    ) -> list[list[Ranked]]:
        """Rank the candidates of each query, best first; ties keep the given order.

        Raises:
            DataError: The number of candidate lists differs from the number of queries.
        """
        asked, offered = require_texts(queries, "queries"), require_lists(candidates, "candidates")
        if len(asked) != len(offered):
            raise DataError(f"{len(asked)} queries and {len(offered)} candidates; expected a list for each query.")
        if not any(offered):
            return [[] for _ in asked]
        nothing = [[0] * len(texts) for texts in offered]
        ids = [row_ids(len(texts)) for texts in offered]
        rows = zip(row_ids(len(asked)), asked, ids, offered, nothing, nothing, nothing, strict=True)
        predictions = self.predictions(CandidateRows.of(rows))
        return [
            [Ranked(int(i), texts[i], float(scores[i])) for i in np.argsort(-scores, kind="stable")]
            for texts, scores in zip(offered, predictions, strict=True)
        ]

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return [InputColumn(columns.query, "text"), InputColumn(columns.candidates, "texts")]

    def output_schema(self) -> pa.Schema:
        return pa.schema([("order", pa.list_(pa.int64())), ("scores", pa.list_(pa.float64()))])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        queries, candidates = inputs
        return [
            {"order": [each.number for each in ranked], "scores": [each.score for each in ranked]}
            for ranked in self.predict(queries, candidates)
        ]


predictor = RerankingPredictor
