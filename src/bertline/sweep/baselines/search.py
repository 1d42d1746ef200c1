"""Baselines of retrieval and of re-ranking: BM25 tuned on dev, and what a query and a candidate share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertline.finetuning.kinds.reranking import CandidateScores, Reranking
from bertline.finetuning.kinds.retrieval import DEPTH, Found, Retrieval
from bertline.sweep.baselines.base import Baseline, best_on_dev, predictions_of
from bertline.sweep.baselines.linear import REGRESSIONS, of_one_label
from bertline.sweep.baselines.overlap import PairOverlap, Standardised
from bertline.tasks.bm25 import ANALYSES, K1, Analysis, B, Bm25
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import CandidateRows, QueryRows

_K1S = (0.3, 0.6, 0.9, 1.2, 1.5, 2.0, 3.0)
_BS = (0.25, 0.5, 0.75, 1.0)
MOST_DOCUMENTS = 100_000
"""An index is built for each setting that is tried: of larger collections, of so many documents."""
MOST_PAIRS = 100_000
"""Candidates of train that are read, with all those of a query, from the first on."""


@dataclass(frozen=True, slots=True)
class _Bm25Settings:
    analysis: Analysis = "words"
    k1: float = K1
    b: float = B


def tuned_bm25(kind: Retrieval, dev: QueryRows, tests: Mapping[SplitName, QueryRows]) -> Baseline:
    """BM25 over the collection: what counts as a word, then k1, then b are chosen on dev, one after the other."""
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
    """The documents that settings are tried on: all, or of very many the first ones and what dev judges."""
    wanted = {document for documents in dev.document_ids for document in documents}
    ids = enumerate(kind.collection.ids)
    return np.array([number for number, each in ids if number < MOST_DOCUMENTS or each in wanted], dtype=np.int64)


def first_stage(kind: Reranking, dev: CandidateRows, tests: Mapping[SplitName, CandidateRows]) -> Baseline:
    """The order of the first stage, which is BM25's."""
    return Baseline(name="bm25", title="BM25", predictions=predictions_of(kind.first_stage, dev, tests))


def candidate_overlap(
    kind: Reranking, train: CandidateRows, dev: CandidateRows, tests: Mapping[SplitName, CandidateRows]
) -> list[Baseline]:
    """What query and candidate share, and how high the first stage put it, under logistic regression.

    None where train has only right candidates, or only wrong ones.
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
    """[candidates, 2]: the first stage's score as a share of the query's best one, and the logarithm of the rank."""
    columns = [np.zeros((0, 2))]
    for of_query in rows.first_scores:
        scores = np.array(of_query, dtype=np.float64)
        ranks = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
        best = np.abs(scores).max(initial=0.0)
        columns.append(np.stack([scores / best if best else scores, -np.log1p(ranks)], axis=1))
    return np.concatenate(columns)


def bm25_of(kind: Retrieval, settings: Mapping[str, Any]) -> Bm25:
    """BM25 over the collection with what dev chose."""
    return Bm25(kind.collection.texts_read(), k1=settings["k1"], b=settings["b"], analysis=settings["terms"])


def found_by(bm25: Bm25, rows: QueryRows) -> Found:
    """The ranking of each query, as far as documents share a term with it."""
    width = min(DEPTH, bm25.num_texts)
    documents: NDArray[np.int64] = np.full((len(rows), width), -1, dtype=np.int64)
    scores: NDArray[np.float32] = np.full((len(rows), width), -np.inf, dtype=np.float32)
    for row, query in enumerate(rows.queries):
        numbers, values = bm25.best(query, width)
        documents[row, : len(numbers)], scores[row, : len(numbers)] = numbers, values
    return Found(documents, scores)
