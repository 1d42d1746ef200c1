"""What twice the labels would buy: a planted power law is recovered, and noise says nothing."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from bertline.sweep.label_curve import curve_sizes, drawn, fitted_curve, label_curve
from bertline.tasks.stored_rows import TextRows

SIZES = [*curve_sizes(1000), 1000]
TRUE_A, TRUE_B = 1.5, 0.35


def points_of(b, *, seed, noise=0.04, a=TRUE_A, sign=1.0):
    """Scores of three draws or seeds at each size, with noise of the error's logarithm."""
    random = np.random.default_rng(seed)
    best = 1.0 if sign > 0 else 0.0
    return [(size, best - a * size**-b * np.exp(random.normal(0, noise))) for size in SIZES for _ in range(3)]


def said_of(points):
    table = [{"rows": rows, "arm": "encoder", "test": [score]} for rows, score in points]
    return label_curve(table, {"encoder": "the encoder", "word_ngrams": "n-grams"}, "accuracy", 500)["sentence"]


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1.0), ("negative_log_loss", -1.0)])
def test_a_planted_power_law_is_recovered_with_intervals_that_hold_it(metric, sign):
    gain = TRUE_A * 1000**-TRUE_B * (1 - 2**-TRUE_B)
    held = {"b": 0, "gain": 0}
    for seed in range(200):
        curve = fitted_curve(points_of(TRUE_B, seed=seed, sign=sign), metric, 10_000)
        assert abs(curve["b"] - TRUE_B) < 0.08 and abs(curve["gain"] / gain - 1) < 0.25
        held["b"] += curve["interval_of_b"][0] <= TRUE_B <= curve["interval_of_b"][1]
        held["gain"] += curve["interval_of_gain"][0] <= gain <= curve["interval_of_gain"][1]
    assert all(number / 200 >= 0.92 for number in held.values())


def test_without_noise_the_law_is_exact():
    curve = fitted_curve(points_of(TRUE_B, seed=0, noise=0.0), "accuracy", 10_000)
    assert (curve["a"], curve["b"]) == (pytest.approx(TRUE_A), pytest.approx(TRUE_B))
    assert curve["gain"] == pytest.approx(TRUE_A * (1000**-TRUE_B - 2000**-TRUE_B))


def test_of_noise_alone_nothing_is_said():
    spoken = 0
    for seed in range(200):
        spoken += bool(said_of(points_of(0.0, seed=seed, noise=0.3, a=0.2)))
    assert spoken <= 12  # one side of a 95 % interval: 5 of 200
    assert said_of(points_of(-0.3, seed=0, a=0.05)) == ""  # fewer errors with fewer labels


def test_models_that_are_always_right_give_no_gain_and_plain_numbers():
    curve = fitted_curve([(size, 1.0) for size in SIZES for _ in range(3)], "accuracy", 500)
    assert "gain" not in curve
    json.dumps(curve, allow_nan=False)


@pytest.mark.parametrize("num_rows", [8, 40, 333])
def test_draws_are_nested_and_stratified_and_differ(num_rows):
    labels = np.random.default_rng(0).choice(3, num_rows, p=[0.6, 0.3, 0.1])
    rows = TextRows([str(row) for row in range(num_rows)], ["text"] * num_rows, None, labels)
    sizes = curve_sizes(num_rows)
    draws = [[set(drawn(rows, size, 0, draw).tolist()) for size in sizes] for draw in range(3)]
    for draw in draws:
        assert [len(one) for one in draw] == sizes
        assert all(smaller <= larger for smaller, larger in itertools.pairwise(draw))
        for size, places in zip(sizes, draw, strict=True):
            counts = np.bincount(labels[[*places]], minlength=3)
            assert np.abs(counts - size * np.bincount(labels, minlength=3) / num_rows).max() <= 1.5
    assert num_rows == 8 or draws[0][0] != draws[1][0]
