"""Baselines for retrieval and re-ranking: BM25 tuned on dev, and what a query and a candidate share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertline.finetuning.vector_index import VectorIndex
from bertline.kinds.retrieval.model import DEPTH, Found, Retrieval
from bertline.sweep.baselines.base import Baseline, BaselineInputs
from bertline.sweep.baselines.encoder_vectors import TextVectors
from bertline.sweep.baselines.linear import one_thread
from bertline.sweep.baselines.vectors import NAMES, TITLES, Name, choices_of, unit
from bertline.tasks.bm25 import ANALYSES, K1, Analysis, B, Bm25
from bertline.tasks.stored_rows import QueryRows

_K1S = (0.3, 0.6, 0.9, 1.2, 1.5, 2.0, 3.0)
_BS = (0.25, 0.5, 0.75, 1.0)
MOST_DOCUMENTS = 100_000
"""Number of documents on which settings are tried if the collection is larger, as each setting needs an index."""


@dataclass(frozen=True, slots=True)
class _Bm25Settings:
    analysis: Analysis = "words"
    k1: float = K1
    b: float = B


def tuned_bm25(inputs: BaselineInputs) -> Baseline:
    """Tune BM25 over the collection on dev: first what counts as a word, then k1, then b."""
    texts, tried = inputs.kind.collection.texts_read(), _tried(inputs.kind, inputs.dev)

    def on_dev(settings: _Bm25Settings) -> Found:
        rankings = found_by(_index([texts[number] for number in tried], settings), inputs.dev)
        return Found(np.where(rankings.documents < 0, -1, tried[rankings.documents]), rankings.scores)

    best = _Bm25Settings()
    best = inputs.best([best, *(replace(best, analysis=analysis) for analysis in ANALYSES)], on_dev)
    best = inputs.best([best, *(replace(best, k1=k1) for k1 in _K1S)], on_dev)
    best = inputs.best([best, *(replace(best, b=b) for b in _BS)], on_dev)
    index = _index(texts, best)
    settings = {"terms": best.analysis, "k1": best.k1, "b": best.b}
    return inputs.baseline("bm25", "BM25", lambda rows: found_by(index, rows), settings)


def _index(texts: list[str], settings: _Bm25Settings) -> Bm25:
    return Bm25(texts, k1=settings.k1, b=settings.b, analysis=settings.analysis)


def _tried(kind: Retrieval, dev: QueryRows) -> NDArray[np.int64]:
    """Return the documents on which settings are tried: all, or in a large collection the first ones and those that dev
    judges."""
    wanted = {document for documents in dev.document_ids for document in documents}
    ids = enumerate(kind.collection.ids)
    return np.array([number for number, each in ids if number < MOST_DOCUMENTS or each in wanted], dtype=np.int64)


def bm25_of(kind: Retrieval, settings: Mapping[str, Any]) -> Bm25:
    """Return BM25 over the collection with the settings that dev chose."""
    return Bm25(kind.collection.texts_read(), k1=settings["k1"], b=settings["b"], analysis=settings["terms"])


def found_by(bm25: Bm25, rows: QueryRows) -> Found:
    """Return the ranking for each query, of documents that share a term with it."""
    width = min(DEPTH, bm25.num_texts)
    documents: NDArray[np.int64] = np.full((len(rows), width), -1, dtype=np.int64)
    scores: NDArray[np.float32] = np.full((len(rows), width), -np.inf, dtype=np.float32)
    for row, query in enumerate(rows.queries):
        numbers, values = bm25.best(query, width)
        documents[row, : len(numbers)], scores[row, : len(numbers)] = numbers, values
    return Found(documents, scores)


def _on_vectors(inputs: BaselineInputs, name: Name) -> Baseline:
    """Rank documents by the cosine with the query's vector, after subtracting the mean document vector from both."""
    texts = inputs.kind.collection.texts_read()

    def found(vectors: TextVectors, several: Sequence[QueryRows]) -> list[Found]:
        of_documents = vectors(texts)
        mean = of_documents.mean(axis=0)
        with one_thread():
            index = VectorIndex.of(unit(of_documents - mean))
            return [Found(*index.search(unit(vectors(rows.queries) - mean), DEPTH)) for rows in several]

    what, _, title = TITLES[name]
    choices = choices_of(name, inputs, inputs.train)
    best = inputs.best(choices, lambda option: found(choices[option], [inputs.dev])[0])
    predictions = dict(zip(inputs.scored, found(choices[best], [*inputs.scored.values()]), strict=True))
    return Baseline(name=name, title=title, predictions=predictions, settings={what: best})


def baselines(inputs: BaselineInputs) -> list[Baseline]:
    """Return BM25, tuned on dev, and rankings by an encoder's vectors."""
    return [tuned_bm25(inputs), *(_on_vectors(inputs, name) for name in NAMES if inputs.encoder is not None)]
