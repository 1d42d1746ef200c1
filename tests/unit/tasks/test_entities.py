"""Entities are counted as seqeval counts them.

`seqeval_1_2_2.json` holds what seqeval 1.2.2 says of random tags, most of them in a broken order. Where seqeval is
installed (its only release is a source archive that needs an old setuptools_scm to build), any tags are compared.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.tasks.metrics.entities import by_type, row_statistics, scores_of
from bertline.tasks.tags import types_of

CASES = json.loads((Path(__file__).parent / "seqeval_1_2_2.json").read_text())
TAGS = ["O", "O", *(f"{letter}-{kind}" for letter in "BI" for kind in ("PER", "LOC", "creative-work"))]


def statistics(gold, predicted):
    types = types_of(tag for tags in (*gold, *predicted) for tag in tags)
    return np.array([row_statistics(*row, types) for row in zip(gold, predicted, strict=True)]), types


@pytest.mark.parametrize("number", range(len(CASES)))
def test_recorded_scores_of_seqeval(number):
    case = CASES[number]
    found, types = statistics([s.split() for s in case["gold"]], [s.split() for s in case["predicted"]])
    assert scores_of(found) == pytest.approx(case["scores"], abs=1e-12)
    assert by_type(found, types) == {kind: pytest.approx(scores, abs=1e-12) for kind, scores in case["by_type"].items()}


@settings(max_examples=200)  # the first example imports seqeval
@given(st.lists(st.lists(st.tuples(*[st.sampled_from(TAGS)] * 2), min_size=1, max_size=12), min_size=1, max_size=5))
def test_any_tags_score_as_in_seqeval(rows):
    seqeval = pytest.importorskip("seqeval.metrics")
    gold = [[one for one, _ in row] for row in rows]
    predicted = [[other for _, other in row] for row in rows]
    found, _ = statistics(gold, predicted)
    scores = scores_of(found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about scores with nothing to count
        assert scores["entity_f1"] == pytest.approx(seqeval.f1_score(gold, predicted), abs=1e-12)
        assert scores["precision"] == pytest.approx(seqeval.precision_score(gold, predicted), abs=1e-12)
        assert scores["recall"] == pytest.approx(seqeval.recall_score(gold, predicted), abs=1e-12)
        assert scores["accuracy"] == pytest.approx(seqeval.accuracy_score(gold, predicted), abs=1e-12)


def test_rows_add_up_so_that_samples_of_rows_can_be_scored():
    rows = [(["B-A", "O"], ["B-A", "B-A"]), (["B-A"], ["O"]), (["O"], ["O"])]
    shares = np.array([row_statistics(gold, predicted, ("A",)) for gold, predicted in rows])
    assert scores_of(shares[[0, 0, 2]])["precision"] == 0.5
    assert scores_of(shares[[1, 2]]) == {"entity_f1": 0.0, "precision": 0.0, "recall": 0.0, "accuracy": 0.5}
