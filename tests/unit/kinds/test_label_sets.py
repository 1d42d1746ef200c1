"""Sets of labels: they hold the right one as often as asked, on average over rows like those that made them."""

from __future__ import annotations

import numpy as np
import pytest

from bertline.foundation.errors import DataError
from bertline.kinds.label_sets import LabelSets


def statistics_of(num_rows, *, seed, num_labels=4):
    """Gold labels, predictions and probabilities of a classifier that is right in some 60 % of the rows."""
    random = np.random.default_rng(seed)
    gold = random.integers(0, num_labels, num_rows)
    logits = random.normal(size=(num_rows, num_labels)) + 1.5 * np.eye(num_labels)[gold]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return np.column_stack((gold, probabilities.argmax(axis=1), probabilities))


@pytest.mark.parametrize(("num_rows", "coverage"), [(19, 0.95), (40, 0.9), (101, 0.5)])
def test_coverage_is_as_asked_on_average_over_calibrations(num_rows, coverage):
    found = []
    for seed in range(400):
        sets = LabelSets.of(statistics_of(num_rows, seed=seed), "half of dev")
        test = statistics_of(200, seed=10_000 + seed)
        held = test[np.arange(200), 2 + test[:, 0].astype(int)] >= sets.lowest_probability(coverage)
        found.append(held.mean())
    # arXiv 2107.07511, theorem 1: at least as asked, and by less than 1 / (n + 1) more where scores do not tie.
    assert coverage - 0.01 < np.mean(found) < coverage + 1 / (num_rows + 1) + 0.01


@pytest.mark.parametrize(
    ("num_rows", "coverage", "named"),
    [
        (18, 0.95, "at least 19 .* has 18 .out of fold.. Fine-tune it with more rows.$"),
        (18, 0.5, "at least 19 .* has 18"),
        (60, 0.99, "at least 99 .* has 60 .* or ask for less.$"),
    ],
)
def test_too_few_rows_are_an_error_that_says_how_many_are_needed(num_rows, coverage, named):
    sets = LabelSets.of(statistics_of(num_rows, seed=1), "out of fold")
    with pytest.raises(DataError, match=named):
        sets.lowest_probability(coverage)


def test_coverage_of_other_rows_is_measured_where_the_scores_suffice():
    sets, test = LabelSets.of(statistics_of(300, seed=2), "half of dev"), statistics_of(2000, seed=3)
    measured = sets.measured(test)
    assert (measured["rows"], measured["num_rows"], list(measured["by_coverage"])) == (
        "half of dev",
        300,
        ["0.9", "0.95"],
    )
    narrow, wide = measured["by_coverage"].values()
    assert abs(narrow["coverage"] - 0.9) < 0.05 and 1 < narrow["mean_size"] < wide["mean_size"] <= 4
    assert LabelSets.of(statistics_of(18, seed=0), "dev").measured(test)["by_coverage"] == {}
