"""Intervals cover the truth as often as they say, and tests find what is there and no more."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bertline.sweep.resampling import interval, paired_test, resampled_scores


def accuracy(statistics):
    return float(statistics[:, 0].mean())


def answers(random, num_rows, share):
    """Row statistics of a system that is right in this share of cases."""
    return (random.random((num_rows, 1)) < share).astype(float)


def compare(first, second, *, num_samples=199, seed=0):
    samples = resampled_scores({"a": [first], "b": [second]}, accuracy, num_samples=num_samples, seed=seed)
    return paired_test(accuracy(first), accuracy(second), samples["a"], samples["b"])


def test_the_interval_covers_the_truth_about_95_times_in_100():
    random = np.random.default_rng(0)
    covered = 0
    for trial in range(400):
        rows = answers(random, 150, 0.7)
        samples = resampled_scores({"a": [rows]}, accuracy, num_samples=200, seed=trial)["a"]
        low, high = interval(samples)
        covered += low <= 0.7 <= high
    assert 0.91 <= covered / 400 <= 0.98


def test_without_a_difference_p_values_are_spread_evenly():
    random = np.random.default_rng(1)
    p_values = []
    for trial in range(300):
        # Two systems of equal worth whose errors are related, as those of real systems are.
        hard = answers(random, 200, 0.5)
        first, second = (np.where(answers(random, 200, 0.7) > 0, hard, answers(random, 200, 0.5)) for _ in range(2))
        p_values.append(compare(first, second, seed=trial).p_value)
    assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.09
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_a_clear_difference_is_clear_and_its_interval_leaves_out_zero():
    random = np.random.default_rng(2)
    found = compare(answers(random, 500, 0.8), answers(random, 500, 0.6))
    assert found.p_value == 1 / 200  # none of the resamples; the data itself counts as one
    assert 0 < found.interval[0] < found.difference < found.interval[1]
    turned = compare(answers(np.random.default_rng(2), 500, 0.6), answers(np.random.default_rng(3), 500, 0.8))
    assert turned.difference < 0
    assert turned.p_value == 1 / 200


def test_equal_systems_do_not_differ():
    rows = answers(np.random.default_rng(3), 100, 0.6)
    found = compare(rows, rows.copy())
    assert (found.difference, found.interval, found.p_value) == (0, (0, 0), 1)


def test_pairing_finds_a_small_difference_that_two_intervals_hide():
    random = np.random.default_rng(4)
    second = answers(random, 400, 0.6)
    first = second.copy()
    first[np.flatnonzero(second[:, 0] == 0)[:12]] = 1  # right wherever the other is, and in twelve more rows
    samples = resampled_scores({"a": [first], "b": [second]}, accuracy, num_samples=500, seed=0)
    (low, _), (_, high) = interval(samples["a"]), interval(samples["b"])
    assert low < high
    assert paired_test(accuracy(first), accuracy(second), samples["a"], samples["b"]).p_value < 0.01


def test_the_score_of_several_seeds_is_their_mean_on_the_same_rows():
    random = np.random.default_rng(5)
    seeds = [answers(random, 50, 0.5), answers(random, 50, 0.9)]
    together = resampled_scores({"a": seeds}, accuracy, num_samples=20, seed=7)["a"]
    alone = [resampled_scores({"a": [rows]}, accuracy, num_samples=20, seed=7)["a"] for rows in seeds]
    assert together == pytest.approx((alone[0] + alone[1]) / 2)


def test_scores_that_are_no_means_of_rows_are_computed_anew_on_each_resample():
    random = np.random.default_rng(6)
    pairs = random.normal(size=(80, 2))
    pairs[:, 1] += pairs[:, 0]

    def pearson(statistics):
        return float(np.corrcoef(statistics.T)[0, 1])

    samples = resampled_scores({"a": [pairs]}, pearson, num_samples=300, seed=0)["a"]
    low, high = interval(samples)
    reference = stats.bootstrap(
        (pairs[:, 0], pairs[:, 1]),
        lambda x, y: np.corrcoef(x, y)[0, 1],
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=300,
        random_state=0,
    ).confidence_interval
    assert (low, high) == pytest.approx((reference.low, reference.high), abs=0.04)
