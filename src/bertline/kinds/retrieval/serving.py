"""Retrieval of documents by vector similarity."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.finetuning.vector_index import VectorIndex
from bertline.foundation.errors import DataError
from bertline.inference.predictor import FileColumns, InputColumn, TaskPredictor, require_texts, row_ids
from bertline.kinds.retrieval.model import DEPTH, Retrieval
from bertline.tasks.metrics.ranking import trec_order
from bertline.tasks.stored_rows import Documents


class Hit(NamedTuple):
    """Retrieved document."""

    number: int
    """Index among the given documents, from 0."""
    score: float


def best_hits(index: VectorIndex, queries: NDArray[np.float32], ids: Sequence[str], top_k: int) -> list[list[Hit]]:
    """Return the best documents of an index for each query, best first, with ties ranked as in evaluation.

    At least as many documents are looked up as evaluation ranks, since an index that is asked for fewer may drop any of
    those with equal scores.

    Args:
        index: Index of the document vectors.
        queries: Query vectors [Q, H].
        ids: Ids of the documents; among equal scores, the id that is greater as a string comes first (`trec_order`).
        top_k: Number of documents to return per query.
    """
    hits = []
    for numbers, scores in zip(*index.search(queries, max(top_k, DEPTH)), strict=True):
        order = trec_order([ids[number] for number in numbers], scores)[:top_k]
        hits.append([Hit(int(numbers[place]), float(scores[place])) for place in order])
    return hits


DOCUMENTS_COLUMN = "documents"
_TOP_K = 10


class RetrievalPredictor(TaskPredictor):
    """Retrieval of documents for queries by vector similarity."""

    kind: Retrieval
    num_documents_cut = 0
    """Number of truncated documents so far."""

    def for_thread(self) -> Self:
        task = super().for_thread()
        task.num_documents_cut = 0
        return task

    def predict(  # type: ignore[override]
        self, queries: Sequence[str], documents: Sequence[str], top_k: int = _TOP_K
    ) -> list[list[Hit]]:
        """Return the `top_k` documents for each query, best first; document ids are their indices."""
        index = VectorIndex.of(self.document_vectors(documents))
        return best_hits(index, self.query_vectors(queries), row_ids(len(index)), top_k)

    def query_vectors(self, queries: Sequence[str]) -> NDArray[np.float32]:
        """Encode queries as vectors [n, H]; unit vectors if the similarity is cosine."""
        encoded = self.kind.encode_queries(require_texts(queries, "queries"), self.tokenizer)
        self.num_cut += int(encoded.cut.sum())
        return self.kind.vectors(self.model, encoded, self.machine)

    def document_vectors(self, documents: Sequence[str]) -> NDArray[np.float32]:
        """Encode documents as vectors [n, H]; unit vectors if the similarity is cosine.

        Raises:
            DataError: There are no documents.
        """
        texts = require_texts(documents, "documents")
        if not texts:
            raise DataError("documents is empty; give at least one to search in.")
        encoded = self.kind.encode_documents(Documents(row_ids(len(texts)), [""] * len(texts), texts), self.tokenizer)
        self.num_documents_cut += int(encoded.cut.sum())
        return self.kind.vectors(self.model, encoded, self.machine)

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return [InputColumn(columns.query, "text")]

    def output_schema(self) -> pa.Schema:
        return pa.schema([("document_ids", pa.list_(pa.string())), ("scores", pa.list_(pa.float64()))])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        raise DataError("a retrieval model searches documents: name them with documents=FILE.")


class SearchedDocuments(RetrievalPredictor):
    """Retrieval model with a fixed set of documents, for a file of queries."""

    def __init__(self, predictor: RetrievalPredictor, ids: list[str], vectors: NDArray[np.float32], top_k: int) -> None:
        super().__init__(predictor.kind, predictor.calibration, predictor.model, predictor.tokenizer)
        self._ids, self._index, self._top_k = ids, VectorIndex.of(vectors), top_k

    def predict(self, queries: Sequence[str]) -> list[list[Hit]]:  # type: ignore[override]
        """Return the best documents for each query, best first."""
        return best_hits(self._index, self.query_vectors(queries), self._ids, self._top_k)

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return [
            {"document_ids": [self._ids[hit.number] for hit in found], "scores": [hit.score for hit in found]}
            for found in self.predict(inputs[0])
        ]


class GivenDocuments(RetrievalPredictor):
    """Retrieval model whose documents come with each query, for requests to a server."""

    top_k = _TOP_K
    """Number of documents to return per query."""

    def __init__(self, predictor: RetrievalPredictor) -> None:
        super().__init__(predictor.kind, predictor.calibration, predictor.model, predictor.tokenizer)

    def with_top_k(self, top_k: Any) -> Self:
        """Return a copy with another number of documents.

        Raises:
            DataError: The number is not a whole number above 0.
        """
        if isinstance(top_k, bool) or not isinstance(top_k, int | np.integer) or top_k < 1:
            raise DataError(f"top_k is {top_k!r}; expected a whole number, at least 1.")
        task = copy.copy(self)
        task.top_k = int(top_k)
        return task

    def predict(self, queries: Sequence[str], documents: Sequence[Sequence[str]]) -> list[list[Hit]]:  # type: ignore[override]
        """Return the best of its own documents for each query; equal lists of documents are encoded once."""
        rows: dict[tuple[str, ...], list[int]] = {}
        for row, texts in enumerate(documents):
            rows.setdefault(tuple(texts), []).append(row)
        hits_of_queries: list[list[Hit]] = [[] for _ in queries]
        for texts, numbers in rows.items():
            hits = super().predict([queries[row] for row in numbers], texts, self.top_k)
            for row, of_query in zip(numbers, hits, strict=True):
                hits_of_queries[row] = of_query
        return hits_of_queries

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return [*super().file_inputs(columns), InputColumn(DOCUMENTS_COLUMN, "texts")]

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        return [
            {"document_ids": [str(hit.number) for hit in hits], "scores": [hit.score for hit in hits]}
            for hits in self.predict(*inputs)
        ]


predictor = RetrievalPredictor
