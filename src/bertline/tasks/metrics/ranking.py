"""Scores of rankings as trec_eval gives them (https://github.com/usnistgov/trec_eval).

Documents are ordered by score; of equal scores the document whose id is greater as a text comes first. A document is
relevant where its relevance is above 0; one that nobody judged is not. Scores are compared as 32-bit numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def trec_order(ids: Sequence[str], scores: Sequence[float] | NDArray[np.floating]) -> NDArray[np.int64]:
    """Places of the documents in the order in which trec_eval ranks them.

    >>> trec_order(["a", "b", "c"], [1.0, 1.0, 2.0]).tolist()
    [2, 1, 0]
    """
    values = np.asarray(scores, dtype=np.float32)
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    # Stable sorts, the less important key first.
    by_id = np.array(sorted(range(len(ids)), key=ids.__getitem__, reverse=True), dtype=np.int64)
    return by_id[np.argsort(-values[by_id], kind="stable")]


def ndcg(ranked: Sequence[int], judged: Sequence[int], k: int) -> float:
    """Discounted gain of the first k over that of the best order (`ndcg_cut_k`): sum of relevance / log2(rank + 1).

    Args:
        ranked: Relevance of each document found, the first one first; 0 where nobody judged it.
        judged: Relevance of each judged document, found or not.
        k: At least 1.

    >>> round(ndcg([0, 2], [2, 1, -1], 10), 4)
    0.4796
    """
    ideal = _discounted(sorted(judged, reverse=True)[:k])
    return _discounted(ranked[:k]) / ideal if ideal > 0 else 0.0


def reciprocal_rank(ranked: Sequence[int], k: int | None = None) -> float:
    """1 over the rank of the first relevant document among the first k (`recip_rank`; None: among all); 0 for none.

    >>> reciprocal_rank([0, 1, 1]), reciprocal_rank([0, 1], k=1)
    (0.5, 0.0)
    """
    return next((1 / rank for rank, relevance in enumerate(ranked[:k], start=1) if relevance > 0), 0.0)


def recall(ranked: Sequence[int], num_relevant: int, k: int) -> float:
    """Share of the relevant documents that are among the first k (`recall_k`).

    >>> recall([1, 0, 1], num_relevant=4, k=2)
    0.25
    """
    return sum(relevance > 0 for relevance in ranked[:k]) / num_relevant if num_relevant else 0.0


def average_precision(ranked: Sequence[int], num_relevant: int) -> float:
    """Mean of the precision at each relevant document; one that was not found counts 0 (`map`).

    >>> average_precision([1, 0, 1], num_relevant=3)
    0.5555555555555555
    """
    precisions: list[float] = []
    for rank, relevance in enumerate(ranked, start=1):
        if relevance > 0:
            precisions.append((len(precisions) + 1) / rank)
    return sum(precisions) / num_relevant if num_relevant else 0.0


def num_relevant(judged: Sequence[int]) -> int:
    """How many of the judged documents are relevant."""
    return sum(relevance > 0 for relevance in judged)


def _discounted(relevances: Sequence[int]) -> float:
    return float(sum(max(value, 0) / np.log2(rank + 1) for rank, value in enumerate(relevances, start=1)))
