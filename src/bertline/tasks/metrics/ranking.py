"""Ranking metrics as in trec_eval (https://github.com/usnistgov/trec_eval).

Documents are ordered by score in fp32; ties are ordered by id as a string, greatest first. A document is relevant if
its relevance is above 0. Unjudged documents are not relevant.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def trec_order(ids: Sequence[str], scores: Sequence[float] | NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the indices of the documents in trec_eval's order.

    >>> trec_order(["a", "b", "c"], [1.0, 1.0, 2.0]).tolist()
    [2, 1, 0]
    """
    values = np.asarray(scores, dtype=np.float32)
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    # Two stable sorts, by id first and then by score.
    by_id = np.array(sorted(range(len(ids)), key=ids.__getitem__, reverse=True), dtype=np.int64)
    return by_id[np.argsort(-values[by_id], kind="stable")]


def ndcg(ranked: Sequence[int], judged: Sequence[int], k: int) -> float:
    """Return nDCG at k (trec_eval's `ndcg_cut_k`), with DCG = sum of relevance / log2(rank + 1).

    Args:
        ranked: Relevance of each retrieved document in rank order; 0 for unjudged documents.
        judged: Relevance of each judged document, retrieved or not.
        k: Cutoff, at least 1.
    """
    ideal = _discounted(sorted(judged, reverse=True)[:k])
    return _discounted(ranked[:k]) / ideal if ideal > 0 else 0.0


def reciprocal_rank(ranked: Sequence[int], k: int | None = None) -> float:
    """Return 1 / rank of the first relevant document of the top k (`recip_rank`; None: of all), 0 if there is none."""
    return next((1 / rank for rank, relevance in enumerate(ranked[:k], start=1) if relevance > 0), 0.0)


def recall(ranked: Sequence[int], num_relevant: int, k: int) -> float:
    """Return the fraction of the relevant documents that are in the top k (`recall_k`)."""
    return sum(relevance > 0 for relevance in ranked[:k]) / num_relevant if num_relevant else 0.0


def ranked_precision(ranked: Sequence[int], num_relevant: int) -> float:
    """Return the mean precision at each relevant document (`map`); documents that were not retrieved count 0."""
    precisions: list[float] = []
    for rank, relevance in enumerate(ranked, start=1):
        if relevance > 0:
            precisions.append((len(precisions) + 1) / rank)
    return sum(precisions) / num_relevant if num_relevant else 0.0


def num_relevant(judged: Sequence[int]) -> int:
    """Return the number of relevant documents."""
    return sum(relevance > 0 for relevance in judged)


def _discounted(relevances: Sequence[int]) -> float:
    return float(sum(max(value, 0) / np.log2(rank + 1) for rank, value in enumerate(relevances, start=1)))
