"""Labels that look wrong: which rows are named, in which order, and when nothing is claimed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bertline.sweep.doubtful_labels import doubtful_labels, out_of_fold, ranked
from bertline.tasks.stored_rows import TextRows

LABELS = ("a", "b", "c")


def rows_of(gold, texts=None):
    names = [f"train.csv:{number + 2}" for number in range(len(gold))]
    return TextRows(names, texts or [f"text {name}" for name in names], None, np.asarray(gold))


def topics(num_rows, num_labels, *, seed):
    """Texts of ten words, of which a third to a half are typical of the topic."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, num_labels, num_rows)
    texts = []
    for label in labels:
        own = random.integers(0, 30, random.integers(3, 6)) + 30 * label
        others = random.integers(0, 30 * num_labels, 10 - len(own))
        texts.append(" ".join(f"w{word}" for word in random.permutation([*own, *others])))
    return rows_of(labels, texts)


def with_wrong_labels(rows, num_labels, *, seed, share=0.05):
    """The rows with some labels replaced by another one, and the indices of those."""
    random = np.random.default_rng(seed)
    wrong = random.permutation(len(rows))[: int(len(rows) * share)]
    labels = rows.labels.copy()
    labels[wrong] = (labels[wrong] + random.integers(1, num_labels, len(wrong))) % num_labels
    return replace(rows, labels=labels), {rows.ids[row] for row in wrong}


def probabilities(gold, others):
    """Probability 0.8 of the gold label, but for the rows of `others`."""
    found = np.full((len(gold), len(LABELS)), 0.1)
    found[np.arange(len(gold)), gold] = 0.8
    for row, values in others.items():
        found[row] = values
    return found


def test_rows_are_ranked_by_the_probability_of_their_own_label():
    gold = np.arange(120) % 3
    others = {3: (0.2, 0.8, 0), 4: (0.95, 0.05, 0), 5: (0.5, 0.1, 0.4)}  # the last is no confident member of a
    found = ranked(rows_of(gold), LABELS, probabilities(gold, others))
    assert [row["id"] for row in found] == ["train.csv:6", "train.csv:5"]
    assert found[0] | {"text": "", "text_pair": None} == {
        "id": "train.csv:6", "text": "", "text_pair": None, "gold": "b", "predicted": "a", "score": 0.95,
        "score_of_gold": 0.05,
    }  # fmt: skip


def test_nothing_is_claimed_of_too_few_rows_in_all_or_of_a_label():
    gold = np.zeros(200, dtype=np.int64)
    gold[:5] = 1
    of_rare_and_for_rare = {0: (1, 0, 0), 199: (0, 1, 0)}
    assert ranked(rows_of(gold), LABELS, probabilities(gold, of_rare_and_for_rare)) == []
    few, _ = with_wrong_labels(topics(99, 3, seed=0), 3, seed=1)
    assert doubtful_labels(few, LABELS, None) == []


@pytest.mark.parametrize("pairs", [False, True])
def test_each_row_is_predicted_by_models_that_did_not_see_it(pairs):
    texts = [f"word{number}" for number in range(60)]  # of words that no other row has, nothing can be told
    rows = replace(rows_of(np.arange(60) % 3, texts), text_pairs=texts if pairs else None)
    assert abs(out_of_fold(rows, 3, None)[np.arange(60), rows.labels].mean() - 1 / 3) < 0.1


def test_most_of_the_twenty_are_labels_that_were_planted():
    rows, planted = with_wrong_labels(topics(1000, 5, seed=0), 5, seed=1)
    assert 0.7 < (out_of_fold(rows, 5, None).argmax(axis=1) == rows.labels).mean() < 0.95  # a task that is not trivial
    found = doubtful_labels(rows, [str(label) for label in range(5)], None)
    assert sum(row["id"] in planted for row in found[:20]) >= 15
