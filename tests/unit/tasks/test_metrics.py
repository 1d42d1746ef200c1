"""Every score equals scikit-learn's, on random labels and on the corners."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from bertline.tasks.metrics import confusion_matrix, score

REFERENCES = {
    "accuracy": reference.accuracy_score,
    "macro_f1": lambda gold, predicted: reference.f1_score(gold, predicted, average="macro", zero_division=0),
    "matthews": reference.matthews_corrcoef,
}


@pytest.mark.parametrize("metric", REFERENCES)
@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
@settings(deadline=None, max_examples=60)
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_score_equals_scikit_learn(metric, pairs):
    gold, predicted = (np.array(column) for column in zip(*pairs, strict=True))
    assert score(metric, gold, predicted, 4) == pytest.approx(REFERENCES[metric](gold, predicted), abs=1e-12)


@pytest.mark.parametrize("metric", REFERENCES)
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_score_of_one_label_everywhere_equals_scikit_learn(metric):
    gold = np.zeros(5, dtype=int)
    assert score(metric, gold, gold, 3) == pytest.approx(REFERENCES[metric](gold, gold))


def test_confusion_matrix_has_gold_labels_as_rows():
    assert confusion_matrix(np.array([0, 0, 2]), np.array([1, 0, 2]), 3).tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
