"""What a label column may hold, and what is said of the rest."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bertline.tasks.bad_rows import BadRow
from bertline.tasks.table_source import ANumber, OneLabel, SeveralLabels

COARSE = re.compile(r"^(\w+):")


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("good ", "good"), (1, "1"), (1.0, "1"), ("1.0", "1"), (1.5, "1.5"), ("1.50", "1.50"), ("3.10", "3.10"),
        (True, "true"), ("True", "true"), ("FALSE", "false"), ("truth", "truth"), (np.int64(2), "2"),
        (np.float32(2), "2"), ("été", "été"), ("v1.0", "v1.0"), ("007", "007"),
    ],
)  # fmt: skip
def test_one_label_is_a_word(value, label):
    assert OneLabel(None, None, None)(value, "here") == label


def test_class_numbers_get_their_names():
    assert OneLabel(None, None, ["no", "yes"])(1, "here") == "yes"
    assert SeveralLabels(None, None, ["a", "b", "c"])([2, 0], "here") == ("c", "a")


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        ("a|b", ("a", "b")),
        ("b | a |b|", ("b", "a")),
        ("", ()),
        (None, ()),
        ([], ()),
        (float("nan"), ()),
        (["x", " y ", "x"], ("x", "y")),
        ([1, "1.0", True, "True"], ("1", "true")),
        ("1|1.0|2", ("1", "2")),
        (np.array(["x", "y"]), ("x", "y")),
        ([1, 2], ("1", "2")),
    ],
)
def test_several_labels_are_a_list_or_words_between_separators(value, labels):
    assert SeveralLabels(None, "|", None)(value, "here") == labels


@pytest.mark.parametrize(
    ("labels", "value", "reason", "says"),
    [
        (OneLabel(None, None, None), " ", "empty_label", "the label is empty"),
        (OneLabel(None, None, None), None, "empty_label", "the label is empty"),
        (OneLabel(None, None, None), float("nan"), "empty_label", "the label is empty"),
        (OneLabel(None, None, None), ["a"], "several_labels", "multi_label: true"),
        (OneLabel(None, None, None), {"a": 1}, "unknown_label", "expected a word"),
        (OneLabel(None, None, ["no", "yes"]), -1, "unknown_label", "set it to null"),
        (OneLabel(COARSE, None, None), "NUM", "label_without_pattern", "source.label_pattern"),
        (SeveralLabels(COARSE, " ", None), "NUM:dist LOC", "label_without_pattern", "'LOC'"),
        (ANumber(0, 5), "", "empty_label", "the number is empty"),
        (ANumber(0, 5), "high", "not_a_number", "'high' is no number"),
        (ANumber(0, 5), "nan", "not_a_number", "no number"),
        (ANumber(0, 5), True, "not_a_number", "no number"),
        (ANumber(0, 5), "4,5", "not_a_number", "no number"),
        (ANumber(0, 5), "5.01", "number_outside_the_scale", "from 0 to 5"),
        (ANumber(1, 5), "inf", "number_outside_the_scale", "from 1 to 5"),
    ],
)
def test_what_is_no_label_says_where_and_why(labels, value, reason, says):
    with pytest.raises(BadRow) as error:
        labels(value, "rows.csv:7")
    assert error.value.reason == reason
    assert str(error.value).startswith("rows.csv:7: ") and says in str(error.value)
