"""Every scheme says the same entities, and they are scored as in seqeval."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.tasks.entities import to_iob2, types_of
from bertline.tasks.metrics.entities import by_type, entity_scores, row_statistics

# Runs of words: how many, and of which type (None: outside). Neighbouring runs of one type are two entities.
runs = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([None, "PER", "LOC", "creative-work"])), min_size=1)


def written(runs, scheme):
    """The tags of the runs, in the words of each scheme's definition."""
    tags = []
    before = None  # the type of the entity that ends on the word before
    for length, kind in runs:
        if kind is None:
            tags += ["O"] * length
        elif scheme == "iob2":
            tags += [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)
        elif scheme == "iob1":
            tags += [f"{'B' if before == kind else 'I'}-{kind}"] + [f"I-{kind}"] * (length - 1)
        else:
            begin, inside, end, single = "BIES" if scheme == "iobes" else "BILU"
            tags += [f"{single}-{kind}"] if length == 1 else []
            tags += [f"{begin}-{kind}", *[f"{inside}-{kind}"] * (length - 2), f"{end}-{kind}"] if length > 1 else []
        before = kind
    return tags


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "iobes", "bilou"])
@given(runs=runs)
def test_every_scheme_comes_to_the_same_tags(scheme, runs):
    assert to_iob2(written(runs, scheme)) == written(runs, "iob2")


@given(st.lists(st.sampled_from(["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("PER", "LOC"))])))
def test_whatever_the_order_the_result_is_sound_iob2_and_keeps_what_is_inside(tags):
    found = to_iob2(tags)
    assert to_iob2(found) == found and {tag[0] for tag in found} <= set("BIO")
    assert [tag.partition("-")[2] for tag in found] == [tag.partition("-")[2] for tag in tags]
    # B- and S- always begin an entity.
    assert all(new[0] == "B" for old, new in zip(tags, found, strict=True) if old[0] in "BS")
    assert all(before[2:] == tag[2:] for before, tag in pairwise(["O", *found]) if tag[0] == "I")


CASES = json.loads((Path(__file__).parent / "seqeval_1_2_2.json").read_text())


def statistics(gold, predicted):
    types = types_of(tag for tags in (*gold, *predicted) for tag in tags)
    return np.array([row_statistics(*row, types) for row in zip(gold, predicted, strict=True)]), types


@pytest.mark.parametrize("number", range(len(CASES)))
def test_recorded_scores_of_seqeval(number):
    case = CASES[number]
    found, types = statistics([s.split() for s in case["gold"]], [s.split() for s in case["predicted"]])
    assert entity_scores(found) == pytest.approx(case["scores"], abs=1e-12)
    assert by_type(found, types) == {kind: pytest.approx(scores, abs=1e-12) for kind, scores in case["by_type"].items()}


def test_rows_add_up_so_that_samples_of_rows_can_be_scored():
    rows = [(["B-A", "O"], ["B-A", "B-A"]), (["B-A"], ["O"]), (["O"], ["O"])]
    shares = np.array([row_statistics(gold, predicted, ("A",)) for gold, predicted in rows])
    assert entity_scores(shares[[0, 0, 2]])["precision"] == 0.5
    assert entity_scores(shares[[1, 2]]) == {"entity_f1": 0.0, "precision": 0.0, "recall": 0.0, "accuracy": 0.5}
