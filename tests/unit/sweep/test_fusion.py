"""The encoder's ranking and BM25's in one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertline.sweep.fusion import fused


def dense(encoder: np.ndarray, bm25: np.ndarray, num_documents: int, k: int, weight: float) -> list[list[int]]:
    """Reciprocal rank fusion as the paper writes it: a score for each document of the collection."""
    orders = []
    for rankings in zip(encoder.tolist(), bm25.tolist(), strict=True):
        scores = dict.fromkeys(range(num_documents), 0.0)
        for ranking, share in zip(rankings, (weight, 1 - weight), strict=True):
            for place, document in enumerate(ranking):
                if document >= 0:
                    scores[document] += share / (k + place + 1)
        found = sorted((document for document in scores if scores[document] > 0), key=lambda d: (-scores[d], d))
        orders.append(found)
    return orders


@given(st.data())
def test_fusion_gives_the_order_of_the_scores_of_all_documents(data):
    num_documents, num_queries = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 3))

    def rankings():
        width = data.draw(st.integers(1, num_documents))
        rows = []
        for _ in range(num_queries):
            order = data.draw(st.permutations(range(num_documents)))
            length = data.draw(st.integers(0, width))
            rows.append([*order[:length], *[-1] * (width - length)])
        return np.array(rows)

    encoder, bm25 = rankings(), rankings()
    k, weight = data.draw(st.sampled_from([1, 5, 60])), data.draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    found = fused(encoder, bm25, num_documents, k=k, weight=weight)
    assert found.documents.shape == found.scores.shape == (num_queries, num_documents)
    for documents, scores, expected in zip(
        found.documents.tolist(), found.scores, dense(encoder, bm25, num_documents, k, weight), strict=True
    ):
        assert documents == [*expected, *[-1] * (num_documents - len(expected))]
        assert (np.isfinite(scores) == (np.array(documents) >= 0)).all()
