"""Temperatures that dev chooses, and what they do to probabilities."""

from __future__ import annotations

import numpy as np
import pytest

import finetuning_inputs as inputs
from bertline.finetuning.temperature import (
    TEMPERATURE,
    sigmoid_temperature,
    softmax_temperature,
    with_sigmoid_temperature,
    with_softmax_temperature,
)
from bertline.kinds.classification import Classification
from bertline.tasks.metrics.classification import expected_calibration_error
from bertline.tasks.stored_rows import TextRows


def softmax(logits):
    return np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


def drawn(temperature, num_rows=4000, num_labels=3):
    """Labels drawn from the probabilities of logits, and what a model says whose logits are too large by a factor."""
    random = np.random.default_rng(0)
    logits = random.normal(0, 1.5, (num_rows, num_labels))
    right = softmax(logits)
    labels = (random.random(num_rows)[:, None] > right.cumsum(1)).sum(1).clip(max=num_labels - 1)
    return softmax(logits * temperature), right, labels


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_dev_finds_the_factor_that_logits_are_off_by(temperature):
    said, right, labels = drawn(temperature)
    assert softmax_temperature(said, labels) == pytest.approx(temperature, rel=0.06)
    np.testing.assert_allclose(with_softmax_temperature(said, temperature), right, atol=1e-5)


def test_of_several_labels_too():
    random = np.random.default_rng(1)
    logits = random.normal(0, 1.5, (3000, 4))
    gold = (random.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    said = 1 / (1 + np.exp(-logits * 3))
    assert sigmoid_temperature(said, gold) == pytest.approx(3, rel=0.06)
    np.testing.assert_allclose(with_sigmoid_temperature(said, 3.0), 1 / (1 + np.exp(-logits)), atol=1e-5)


def test_probabilities_of_0_and_1_stay_finite():
    said = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=np.float32)
    labels = np.array([0, 1, 1])
    temperature = softmax_temperature(said, labels)
    assert temperature > 1
    assert np.isfinite(with_softmax_temperature(said, temperature)).all()
    assert np.isfinite(with_sigmoid_temperature(said, temperature)).all()


def test_the_expected_calibration_error_is_that_of_the_definition():
    random = np.random.default_rng(2)
    probabilities, happened = random.random(500), random.random(500) < 0.5
    expected = 0.0
    for low, high in zip(np.linspace(0, 1, 16)[:-1], np.linspace(0, 1, 16)[1:], strict=True):
        inside = (probabilities > low) & (probabilities <= high)
        if inside.any():
            expected += inside.sum() / 500 * abs(happened[inside].mean() - probabilities[inside].mean())
    assert expected_calibration_error(probabilities, happened) == pytest.approx(expected)
    assert expected_calibration_error(np.array([1.0, 0.0]), np.array([True, False])) == 0
    assert expected_calibration_error(np.zeros(0), np.zeros(0, dtype=bool)) == 0


def rows_of(labels, kind=TextRows):
    texts = ["a"] * len(labels)
    return kind([str(i) for i in range(len(labels))], texts, None, labels)


def test_a_task_that_asks_for_it_is_calibrated_and_scores_stay():
    said, _, labels = drawn(2.5)
    said, rows = said.astype(np.float32), rows_of(labels)
    plain = Classification(inputs.task(), ("a", "b", "c"))
    kind = Classification(inputs.task(calibration="temperature"), ("a", "b", "c"))
    assert plain.calibrate(rows, said) == {}
    calibration = kind.calibrate(rows, said)
    assert calibration[TEMPERATURE] == pytest.approx(2.5, rel=0.06)
    after, before = kind.statistics(rows, said, calibration), plain.statistics(rows, said, {})
    assert np.array_equal(after[:, :2], before[:, :2])
    assert kind.scores(after)["negative_log_loss"] > plain.scores(before)["negative_log_loss"]
    errors = kind.details(rows, said, calibration)["calibration_error"]
    assert errors["after"] < 0.02 < 0.1 < errors["before"]
    assert plain.details(rows, said, {})["calibration_error"] == {"before": errors["before"]}
    table = kind.table(rows, said, calibration)
    by_label = np.stack([table[f"probability_{label}"].to_numpy() for label in "abc"], axis=1)
    np.testing.assert_allclose(by_label, with_softmax_temperature(said, calibration[TEMPERATURE]), atol=1e-6)
    np.testing.assert_allclose(table["score"].to_numpy(), by_label.max(axis=1), atol=1e-6)
    assert np.array_equal(by_label.argmax(axis=1), said.argmax(axis=1))
