"""Baseline of retrieval and of re-ranking: BM25."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bertline.finetuning.kinds.reranking import Reranking
from bertline.finetuning.kinds.retrieval import DEPTH, Found, Retrieval
from bertline.sweep.baselines.base import Baseline
from bertline.tasks.bm25 import K1, B
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import CandidateRows, QueryRows

_SETTINGS = {"k1": K1, "b": B}


def retrieval_baselines(kind: Retrieval, dev: QueryRows, tests: Mapping[SplitName, QueryRows]) -> list[Baseline]:
    """BM25 over the collection."""
    predictions = {split: _found(kind, rows) for split, rows in {"dev": dev, **tests}.items()}
    return [Baseline(name="bm25", title="BM25", predictions=predictions, settings=_SETTINGS)]


def reranking_baselines(
    kind: Reranking, dev: CandidateRows, tests: Mapping[SplitName, CandidateRows]
) -> list[Baseline]:
    """The order of the first stage, which is BM25's."""
    predictions = {split: kind.first_stage(rows) for split, rows in {"dev": dev, **tests}.items()}
    return [Baseline(name="bm25", title="BM25", predictions=predictions, settings=_SETTINGS)]


def _found(kind: Retrieval, rows: QueryRows) -> Found:
    width = min(DEPTH, len(kind.collection))
    documents: NDArray[np.int64] = np.full((len(rows), width), -1, dtype=np.int64)
    scores: NDArray[np.float32] = np.full((len(rows), width), -np.inf, dtype=np.float32)
    for row, query in enumerate(rows.queries):
        numbers, values = kind.bm25.best(query, width)
        documents[row, : len(numbers)], scores[row, : len(numbers)] = numbers, values
    return Found(documents, scores)
