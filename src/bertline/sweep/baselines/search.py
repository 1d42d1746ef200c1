"""Baselines for retrieval and re-ranking: BM25 tuned on dev, and what a query and a candidate share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertline.kinds.reranking.model import CandidateScores, Reranking
from bertline.kinds.retrieval.model import DEPTH, Found, Retrieval
from bertline.sweep.baselines.base import Baseline, best_on_dev, predictions_of
from bertline.sweep.baselines.linear import REGRESSIONS, of_one_label
from bertline.sweep.baselines.overlap import PairOverlap, Standardised
from bertline.tasks.bm25 import ANALYSES, K1, Analysis, B, Bm25
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import CandidateRows, QueryRows

_K1S = (0.3, 0.6, 0.9, 1.2, 1.5, 2.0, 3.0)
_BS = (0.25, 0.5, 0.75, 1.0)
MOST_DOCUMENTS = 100_000
"""Number of documents on which settings are tried if the collection is larger, as each setting needs an index."""
MOST_PAIRS = 100_000
"""Maximum number of candidates that are read from the first rows of train, always all candidates of a query."""


@dataclass(frozen=True, slots=True)
class _Bm25Settings:
    analysis: Analysis = "words"
    k1: float = K1
    b: float = B


def tuned_bm25(kind: Retrieval, dev: QueryRows, tests: Mapping[SplitName, QueryRows]) -> Baseline:
    """Tune BM25 over the collection on dev: first what counts as a word, then k1, then b."""
    texts, tried = kind.collection.texts_read(), _tried(kind, dev)

    def on_dev(settings: _Bm25Settings) -> Found:
        found = found_by(_index([texts[number] for number in tried], settings), dev)
        return Found(np.where(found.documents < 0, -1, tried[found.documents]), found.scores)

    def better(settings: _Bm25Settings, options: list[_Bm25Settings]) -> _Bm25Settings:
        return best_on_dev(kind, dev, [settings, *options], on_dev)

    best = _Bm25Settings()
    best = better(best, [replace(best, analysis=analysis) for analysis in ANALYSES])
    best = better(best, [replace(best, k1=k1) for k1 in _K1S])
    best = better(best, [replace(best, b=b) for b in _BS])
    index = _index(texts, best)
    return Baseline(
        name="bm25",
        title="BM25",
        predictions=predictions_of(lambda rows: found_by(index, rows), dev, tests),
        settings={"terms": best.analysis, "k1": best.k1, "b": best.b},
    )


def _index(texts: list[str], settings: _Bm25Settings) -> Bm25:
    return Bm25(texts, k1=settings.k1, b=settings.b, analysis=settings.analysis)


def _tried(kind: Retrieval, dev: QueryRows) -> NDArray[np.int64]:
    """Return the documents on which settings are tried: all, or in a large collection the first ones and those that dev
    judges."""
    wanted = {document for documents in dev.document_ids for document in documents}
    ids = enumerate(kind.collection.ids)
    return np.array([number for number, each in ids if number < MOST_DOCUMENTS or each in wanted], dtype=np.int64)


def first_stage(kind: Reranking, dev: CandidateRows, tests: Mapping[SplitName, CandidateRows]) -> Baseline:
    """Return the baseline that keeps the order of the first stage, which is BM25's."""
    return Baseline(name="bm25", title="BM25", predictions=predictions_of(kind.first_stage, dev, tests))


def candidate_overlap(
    kind: Reranking, train: CandidateRows, dev: CandidateRows, tests: Mapping[SplitName, CandidateRows]
) -> list[Baseline]:
    """Fit logistic regression on what query and candidate share and on the first stage's score and rank.

    The list is empty if all candidates of train are relevant, or none is.
    """
    ends = np.cumsum([len(candidates) for candidates in train.candidates])
    read = train.first(max(1, int(np.searchsorted(ends, MOST_PAIRS, side="right"))))
    relevant = np.array([value > 0 for values in read.relevances for value in values], dtype=np.int64)
    if len(np.unique(relevant)) < 2:
        return []
    overlap = Standardised(PairOverlap(*_pairs(read)), *_pairs(read))

    def features(rows: CandidateRows) -> NDArray[np.float64]:
        return np.concatenate([overlap(*_pairs(rows)), _first_scores(rows)], axis=1)

    train_features, dev_features = features(read), features(dev)
    fitted = {model: of_one_label(model, train_features, relevant, 2) for model in REGRESSIONS}

    def scores(probabilities: NDArray[np.float32], rows: CandidateRows) -> CandidateScores:
        return np.split(probabilities[:, 1], np.cumsum([len(one) for one in rows.candidates]))[: len(rows)]

    best = best_on_dev(kind, dev, fitted, lambda model: scores(fitted[model](dev_features), dev))
    return [
        Baseline(
            name="pair_features",
            title="what query and candidate share, logistic regression",
            predictions=predictions_of(lambda rows: scores(fitted[best](features(rows)), rows), dev, tests),
            settings=best.settings(),
        )
    ]


def _pairs(rows: CandidateRows) -> tuple[list[str], list[str]]:
    queries = [query for query, texts in zip(rows.queries, rows.candidates, strict=True) for _ in texts]
    return queries, [text for texts in rows.candidates for text in texts]


def _first_scores(rows: CandidateRows) -> NDArray[np.float64]:
    """Return [candidates, 2]: the score of the first stage relative to the largest, and -log(1 + rank), rank from 0."""
    columns = [np.zeros((0, 2))]
    for of_query in rows.first_scores:
        scores = np.array(of_query, dtype=np.float64)
        ranks = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
        best = np.abs(scores).max(initial=0.0)
        columns.append(np.stack([scores / best if best else scores, -np.log1p(ranks)], axis=1))
    return np.concatenate(columns)


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
