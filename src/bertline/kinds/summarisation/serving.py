"""Extractive summarisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bertline.inference.predictor import FileColumns, InputColumn, TaskPredictor, row_ids, split_documents
from bertline.tasks.stored_rows import SummaryRows


class Summary(NamedTuple):
    """Extractive summary of a document."""

    text: str
    """Chosen sentences, joined by spaces."""
    sentences: tuple[str, ...]
    """Chosen sentences, in document order."""
    places: tuple[int, ...]
    """Indices of the chosen sentences in the document, from 0."""
    scores: tuple[float, ...]
    """Probability of each chosen sentence."""


class SummarisationPredictor(TaskPredictor):
    """Summarisation by the best sentences of each document."""

    def predict(self, texts: Sequence[str] | Sequence[Sequence[str]]) -> list[Summary]:  # type: ignore[override]
        """Return the best sentences of each document.

        Args:
            texts: Documents, which are split into sentences; or lists of sentences, which are used as given.

        Raises:
            DataError: A document has no sentences.
        """
        documents = split_documents(texts)
        if not documents:
            return []
        nothing = [[0] * len(sentences) for sentences in documents]
        rows = SummaryRows(row_ids(len(documents)), documents, [""] * len(documents), nothing)
        summaries = []
        for sentences, scores in zip(documents, self.predictions(rows), strict=True):
            best = np.sort(np.argsort(-scores, kind="stable")[: self.kind.config.num_sentences])
            chosen = tuple(sentences[place] for place in best)
            summaries.append(Summary(" ".join(chosen), chosen, tuple(best.tolist()), tuple(scores[best].tolist())))
        return summaries

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return [InputColumn(columns.text, "text or texts", may_be_empty=False)]

    def output_schema(self) -> pa.Schema:
        return pa.schema([("summary", pa.string()), ("sentences", pa.list_(pa.int64()))])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return [{"summary": each.text, "sentences": list(each.places)} for each in self.predict(inputs[0])]


predictor = SummarisationPredictor
