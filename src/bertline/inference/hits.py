"""The nearest documents of a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertline.finetuning.vector_index import VectorIndex
from bertline.kinds.retrieval.model import DEPTH
from bertline.tasks.metrics.ranking import trec_order


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
    found = []
    for numbers, scores in zip(*index.search(queries, max(top_k, DEPTH)), strict=True):
        order = trec_order([ids[number] for number in numbers], scores)[:top_k]
        found.append([Hit(int(numbers[place]), float(scores[place])) for place in order])
    return found
