"""Answers are scored as SQuAD's official script does it; torchmetrics carries its first version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.text import squad

from bertline.tasks.metrics.answers import answer_scores, best_no_answer_threshold

PARTS = [
    "the", "a", "An", "THE", "cat", "Cat", "dog", "12", "3.5", "é", "É", "co-op", "!", "...", "“x”", "東京", "İ",
    "cat's",
]  # fmt: skip
texts = st.lists(st.sampled_from(PARTS), max_size=6).flatmap(
    lambda parts: st.sampled_from([" ", "", "  ", "\n", ". "]).map(lambda space: space.join(parts))
)
# Version 2.0 leaves out right answers of which nothing is left after normalising; version 1.1 has no such rule.
right_texts = texts.map(lambda text: f"{text} dog")


def reference(predicted, gold):
    answer = {"answers": {"answer_start": [0] * len(gold), "text": gold}, "id": "q"}
    scores = squad([{"prediction_text": predicted, "id": "q"}], [answer])
    return float(scores["f1"]) / 100, float(scores["exact_match"]) / 100


@given(predicted=st.one_of(texts, st.text(max_size=12)), gold=st.lists(right_texts, min_size=1, max_size=3))
def test_f1_and_exact_match_equal_the_reference(predicted, gold):
    assert answer_scores(predicted, gold) == pytest.approx(reference(predicted, gold), abs=1e-6)


def mean_score(threshold, scores, has_answer, no_answer_scores):
    return np.where(no_answer_scores > threshold, ~has_answer, scores).mean()


questions = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0])),
    min_size=1,
    max_size=12,
)


@given(questions)
def test_no_threshold_scores_higher_than_the_one_that_is_found(rows):
    scores, has_answer, no_answer = (np.array(column) for column in zip(*rows, strict=True))
    scores = np.where(has_answer, scores, 0.0)
    found = best_no_answer_threshold(scores, has_answer, no_answer)
    best = max(mean_score(threshold, scores, has_answer, no_answer) for threshold in (-9.0, *no_answer, 9.0))
    assert mean_score(found, scores, has_answer, no_answer) == pytest.approx(best)
