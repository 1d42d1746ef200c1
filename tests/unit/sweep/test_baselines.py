"""The baselines that an encoder has to beat."""

from __future__ import annotations

import numpy as np

from bertline.sweep.baselines import REGULARISATION, majority_scores, tfidf_scores
from bertline.tasks.storage import Rows


def rows(texts, labels, pairs=None):
    return Rows([str(i) for i in range(len(texts))], texts, pairs, np.array(labels))


def test_majority_says_the_most_frequent_label_of_train():
    train, dev, test = rows(["a"] * 3, [1, 1, 0]), rows(["b"] * 2, [1, 0]), rows(["c"] * 4, [0, 0, 0, 1])
    scores = majority_scores(train, dev, test, metric="accuracy", num_labels=2)
    assert (scores.dev, scores.test) == (0.5, 0.25)


def test_tfidf_learns_words_and_dev_chooses_its_penalty(inputs):
    train, dev, test = (inputs.learnable_rows(n, seed=n) for n in (120, 60, 61))
    scores = tfidf_scores(train, dev, test, metric="accuracy", num_labels=2)
    assert scores.dev > 0.95 and scores.test > 0.95
    assert scores.c in REGULARISATION
    assert scores == tfidf_scores(train, dev, test, metric="accuracy", num_labels=2)


def test_the_words_of_the_two_texts_of_a_pair_are_told_apart():
    # The label is on which side "yes" stands: a bag of both texts' words would know nothing.
    sides = [("yes now", "no then"), ("no then", "yes now")] * 20
    data = rows([left for left, _ in sides], [1, 0] * 20, [right for _, right in sides])
    assert tfidf_scores(data, data, data, metric="accuracy", num_labels=2).test == 1.0
