"""Correlations equal scipy's, with ties, constants and numbers of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from bertline.tasks.metrics.correlation import pearson, spearman

NUMBERS = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
FEW_NUMBERS = st.sampled_from([0.0, 0.5, 1.0, 2.5, 5.0])  # so few that most stand several times


def pairs_of(numbers):
    return st.lists(st.tuples(numbers, numbers), min_size=2, max_size=40)


@pytest.mark.parametrize("numbers", [NUMBERS, FEW_NUMBERS], ids=["any", "ties"])
def test_correlations_equal_scipys(numbers):
    @given(pairs_of(numbers))
    @settings(max_examples=80)
    def holds(pairs):
        gold, predicted = (np.array(column) for column in zip(*pairs, strict=True))
        # Scipy warns of, and rounds differently in, columns that are all but constant.
        assume(min(np.ptp(gold), np.ptp(predicted)) > 1e-3 * max(np.abs(gold).max(), np.abs(predicted).max(), 1e-9))
        assert pearson(gold, predicted) == pytest.approx(stats.pearsonr(gold, predicted).statistic, abs=1e-9)
        assert spearman(gold, predicted) == pytest.approx(stats.spearmanr(gold, predicted).statistic, abs=1e-9)

    holds()


@pytest.mark.parametrize("correlation", [pearson, spearman])
@pytest.mark.parametrize(
    ("gold", "predicted"),
    [([1.0, 2.0, 3.0], [0.1] * 3), ([2.0] * 3, [1.0, 2.0, 3.0]), ([1.0], [1.0]), ([], [])],
    ids=["constant prediction", "constant gold", "one row", "no rows"],
)
def test_what_is_not_defined_is_0(correlation, gold, predicted):
    assert correlation(np.array(gold), np.array(predicted)) == 0.0
