"""The encoder's ranking and BM25's in one."""

from __future__ import annotations

import numpy as np
import pytest

from bertline.sweep.fusion import Fusion

ENCODER, BM25 = np.array([[3, 1, 0]]), np.array([[1, 2, -1]])


def test_scores_are_those_of_the_formula():
    found = Fusion(k=60, weight=0.25)(ENCODER, BM25, 5)
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
    documents = Fusion(k=5, weight=weight)(ENCODER, BM25, 5).documents[0]
    assert documents[documents >= 0].tolist() == kept


def test_what_both_rank_high_comes_before_what_one_ranks_highest():
    found = Fusion(k=60, weight=0.5)(np.array([[0, 2, 3]]), np.array([[1, 2, 3]]), 4)
    assert found.documents[0].tolist()[:2] == [2, 3]
