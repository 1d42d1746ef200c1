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


@pytest.mark.parametrize("gold", [0, 2])
@pytest.mark.parametrize("predicted", [0, 2])
def test_of_one_label_everywhere_scores_equal_scikit_learns(gold, predicted):
    assert ours([gold] * 5, [predicted] * 5, 3) == pytest.approx(theirs([gold] * 5, [predicted] * 5))


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
