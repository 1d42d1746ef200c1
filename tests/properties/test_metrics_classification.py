"""Every score of a classifier equals scikit-learn's, on random labels and on the corners."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from bertline.tasks.metrics.classification import (
    PROBABILITY_SCORES,
    best_threshold,
    confusion_matrix,
    expected_calibration_error,
    multi_label_scores,
    scores_by_label,
    scores_of,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # scikit-learn's, of scores that are not defined

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


def theirs(gold, predicted):
    return {
        "accuracy": reference.accuracy_score(gold, predicted),
        "macro_f1": reference.f1_score(gold, predicted, average="macro", zero_division=0),
        "micro_f1": reference.f1_score(gold, predicted, average="micro"),
        "matthews": reference.matthews_corrcoef(gold, predicted),
        "balanced_accuracy": reference.balanced_accuracy_score(gold, predicted),
    }


@given(PAIRS)
@example([(0, 0)] * 5)  # one label everywhere
@example([(2, 0)] * 5)
@settings(max_examples=80)
def test_scores_equal_scikit_learns(pairs):
    gold, predicted = zip(*pairs, strict=True)
    ours = scores_of(confusion_matrix(np.array(gold), np.array(predicted), 4))
    assert ours == pytest.approx(theirs(gold, predicted), abs=1e-12)


@st.composite
def label_matrices(draw):
    num_rows, num_labels = draw(st.integers(1, 12)), draw(st.integers(2, 5))
    row = st.lists(st.integers(0, 1), min_size=num_labels, max_size=num_labels)
    matrix = st.lists(row, min_size=num_rows, max_size=num_rows)
    return np.array(draw(matrix)), np.array(draw(matrix))


@given(label_matrices())
@settings(max_examples=80)
def test_scores_of_several_labels_equal_scikit_learns(matrices):
    gold, given_labels = matrices
    expected = {
        "accuracy": reference.accuracy_score(gold, given_labels),
        "macro_f1": reference.f1_score(gold, given_labels, average="macro", zero_division=0),
        "micro_f1": reference.f1_score(gold, given_labels, average="micro", zero_division=0),
    }
    assert multi_label_scores(gold, given_labels) == pytest.approx(expected, abs=1e-12)
    names = [f"label{number}" for number in range(gold.shape[1])]
    precision, recall, f1, rows = reference.precision_recall_fscore_support(gold, given_labels, zero_division=0)
    counts = np.stack([(gold & given_labels).sum(axis=0), given_labels.sum(axis=0), gold.sum(axis=0)], axis=1)
    for place, scores in enumerate(scores_by_label(counts, names).values()):
        expected = {"f1": f1[place], "precision": precision[place], "recall": recall[place], "support": rows[place]}
        assert scores == pytest.approx(expected, abs=1e-12)


@st.composite
def probabilities_of_labels(draw):
    """Label ids, each at least once, and probabilities with ties."""
    num_labels = draw(st.integers(2, 4))
    gold = [*range(num_labels), *draw(st.lists(st.integers(0, num_labels - 1), max_size=20))]
    row = st.lists(st.integers(1, 6), min_size=num_labels, max_size=num_labels)
    weights = np.array(draw(st.lists(row, min_size=len(gold), max_size=len(gold))))
    return np.array(gold), (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32).astype(np.float64)


@given(probabilities_of_labels())
@settings(max_examples=80, deadline=None)
def test_scores_of_probabilities_equal_scikit_learns(rows):
    gold, probabilities = rows
    labels, has = range(probabilities.shape[1]), np.eye(probabilities.shape[1])[gold]
    if len(labels) == 2:
        has, columns = has[:, 1], probabilities[:, 1]
    else:
        columns = probabilities
    expected = {
        "auroc": reference.roc_auc_score(has, columns),
        "average_precision": reference.average_precision_score(has, columns),
        "negative_log_loss": -reference.log_loss(gold, probabilities, labels=labels),
        "negative_brier_score": -np.square(has - columns).reshape(len(gold), -1).sum(axis=1).mean(),
    }
    assert {name: score(gold, probabilities) for name, score in PROBABILITY_SCORES.items()} == pytest.approx(
        expected, abs=1e-6
    )
    if len(labels) == 2:
        assert expected["negative_brier_score"] == pytest.approx(-reference.brier_score_loss(gold, columns))


def test_scores_of_probabilities_are_defined_where_a_label_has_no_row():
    gold, probabilities = np.array([1, 1]), np.array([[0.4, 0.6], [1.0, 0.0]])
    found = {name: score(gold, probabilities) for name, score in PROBABILITY_SCORES.items()}
    assert found["auroc"] == 0.0
    assert all(np.isfinite(value) for value in found.values())


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), min_size=1, max_size=30), st.sampled_from([0.5, 1.0, 2.0])
)
@settings(max_examples=80)
def test_f_beta_and_its_best_threshold_are_those_of_a_plain_search(rows, beta):
    gold, positive = (np.array(column) for column in zip(*rows, strict=True))
    positive = (positive / 9).astype(np.float32)

    def at(threshold):
        predicted = (positive >= threshold).astype(int)
        return scores_of(confusion_matrix(gold, predicted, 2), beta=beta)["f_beta"]

    predicted = (positive >= 0.5).astype(int)
    expected = reference.fbeta_score(gold, predicted, beta=beta, zero_division=0)
    assert at(0.5) == pytest.approx(expected)
    # Between two neighbouring probabilities, every threshold predicts the same; beyond the ends nothing is learnt.
    values = np.unique(positive.astype(np.float64))
    tried = [0.5, *((values[1:] + values[:-1]) / 2)]
    found = best_threshold(gold, positive, lambda matrix: scores_of(matrix, beta=beta)["f_beta"])
    assert at(found) == max(map(at, tried))
    assert found == min((one for one in tried if at(one) == at(found)), key=lambda one: (abs(one - 0.5), one))


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
