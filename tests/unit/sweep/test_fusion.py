"""The encoder's ranking and BM25's in one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.sweep.fusion import Fusion, Places

ENCODER, BM25 = np.array([[3, 1, 0]]), np.array([[1, 2, -1]])


def test_scores_are_those_of_the_formula():
    found = Fusion(k=60, weight=0.25)(Places.of(ENCODER, BM25), 5)
    expected = {
        1: 0.25 / 62 + 0.75 / 61,
        2: 0.75 / 62,
        3: 0.25 / 61,
        0: 0.25 / 63,
    }
    assert found.documents.tolist() == [[1, 2, 3, 0, -1]]
    assert found.scores[0, :4] == pytest.approx([expected[number] for number in (1, 2, 3, 0)])
    assert found.scores[0, 4] == -np.inf


@pytest.mark.parametrize(("weight", "kept"), [(1.0, [3, 1, 0]), (0.0, [1, 2])])
def test_all_the_weight_on_one_side_is_that_ranking(weight, kept):
    documents = Fusion(k=5, weight=weight)(Places.of(ENCODER, BM25), 5).documents[0]
    assert documents[documents >= 0].tolist() == kept


def test_what_both_rank_high_comes_before_what_one_ranks_highest():
    found = Fusion(k=60, weight=0.5)(Places.of(np.array([[0, 2, 3]]), np.array([[1, 2, 3]])), 4)
    assert found.documents[0].tolist()[:2] == [2, 3]


def dense(fusion: Fusion, encoder: np.ndarray, bm25: np.ndarray, num_documents: int) -> list[list[int]]:
    """Reciprocal rank fusion as the paper writes it: a score for each document of the collection."""
    orders = []
    for rankings in zip(encoder.tolist(), bm25.tolist(), strict=True):
        scores = dict.fromkeys(range(num_documents), 0.0)
        for ranking, weight in zip(rankings, (fusion.weight, 1 - fusion.weight), strict=True):
            for place, document in enumerate(ranking):
                if document >= 0:
                    scores[document] += weight / (fusion.k + place + 1)
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
    fusion = Fusion(k=data.draw(st.sampled_from([1, 5, 60])), weight=data.draw(st.sampled_from([0.1, 0.5, 0.9])))
    found = fusion(Places.of(encoder, bm25), num_documents)
    assert found.documents.shape == found.scores.shape == (num_queries, num_documents)
    for documents, scores, expected in zip(
        found.documents.tolist(), found.scores, dense(fusion, encoder, bm25, num_documents), strict=True
    ):
        assert documents == [*expected, *[-1] * (num_documents - len(expected))]
        assert (np.isfinite(scores) == (np.array(documents) >= 0)).all()
