"""Every score of a classifier equals scikit-learn's, on random labels and on the corners."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from bertline.tasks.metrics.classification import confusion_matrix, multi_label_scores, scores_by_label, scores_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # scikit-learn's, of scores that are not defined

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)
TWO_LABELS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)


def ours(gold, predicted, num_labels):
    return scores_of(confusion_matrix(np.array(gold), np.array(predicted), num_labels))


def theirs(gold, predicted):
    return {
        "accuracy": reference.accuracy_score(gold, predicted),
        "macro_f1": reference.f1_score(gold, predicted, average="macro", zero_division=0),
        "micro_f1": reference.f1_score(gold, predicted, average="micro"),
        "matthews": reference.matthews_corrcoef(gold, predicted),
    }


@given(PAIRS)
@settings(max_examples=80)
def test_scores_equal_scikit_learns(pairs):
    gold, predicted = zip(*pairs, strict=True)
    assert ours(gold, predicted, 4) == pytest.approx(theirs(gold, predicted), abs=1e-12)


@given(TWO_LABELS)
@settings(max_examples=60)
def test_of_two_labels_f1_is_that_of_the_second(pairs):
    gold, predicted = zip(*pairs, strict=True)
    expected = {**theirs(gold, predicted), "f1": reference.f1_score(gold, predicted, zero_division=0)}
    assert ours(gold, predicted, 2) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("gold", [0, 2])
@pytest.mark.parametrize("predicted", [0, 2])
def test_of_one_label_everywhere_scores_equal_scikit_learns(gold, predicted):
    assert ours([gold] * 5, [predicted] * 5, 3) == pytest.approx(theirs([gold] * 5, [predicted] * 5))


def test_matthews_of_a_constant_prediction_is_0():
    assert ours([0, 1, 1, 2], [1, 1, 1, 1], 3)["matthews"] == 0.0


def test_no_rows_score_0():
    assert set(ours(np.zeros(0, dtype=int), np.zeros(0, dtype=int), 2).values()) == {0.0}
    assert set(multi_label_scores(np.zeros((0, 3), dtype=int), np.zeros((0, 3), dtype=int)).values()) == {0.0}


def test_confusion_matrix_has_gold_labels_as_rows():
    assert confusion_matrix(np.array([0, 0, 2]), np.array([1, 0, 2]), 3).tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


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
    for place, scores in enumerate(scores_by_label(gold, given_labels, names).values()):
        expected = {"f1": f1[place], "precision": precision[place], "recall": recall[place], "rows": rows[place]}
        assert scores == pytest.approx(expected, abs=1e-12)


def test_rows_without_any_label_and_without_any_given_are_right_and_have_no_f1():
    nothing = np.zeros((4, 2), dtype=int)
    assert multi_label_scores(nothing, nothing) == {"accuracy": 1.0, "macro_f1": 0.0, "micro_f1": 0.0}
