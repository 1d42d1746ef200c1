"""BM25 is its formula."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.tasks.bm25 import Bm25, words_of


def by_definition(texts, query, k1, b):
    corpus = [words_of(text) for text in texts]
    mean = sum(map(len, corpus)) / len(corpus)
    scores = []
    for words in corpus:
        score = 0.0
        for word in words_of(query):
            df, tf = sum(word in other for other in corpus), words.count(word)
            idf = math.log(1 + (len(corpus) - df + 0.5) / (df + 0.5))
            score += idf * tf / (tf + k1 * (1 - b + b * len(words) / mean)) if tf else 0.0
        scores.append(score)
    return scores


words = st.lists(st.sampled_from(["aa", "bb", "cc", "dd", "ee"]), max_size=8).map(" ".join)


@given(st.lists(words, min_size=1, max_size=8), words, st.floats(0.1, 3), st.floats(0, 1))
@settings(max_examples=60)
def test_scores_are_those_of_the_formula_for_any_texts(texts, query, k1, b):
    if any(words_of(text) for text in texts):
        assert np.allclose(Bm25(texts, k1=k1, b=b).scores(query), by_definition(texts, query, k1, b), atol=1e-4)


def test_the_best_share_a_word_and_equals_keep_their_order():
    numbers, scores = Bm25(["aa bb", "cc", "aa bb", "aa aa"]).best("aa", 10)
    assert numbers.tolist() == [3, 0, 2]
    assert np.all(np.diff(scores) <= 0)
    assert Bm25(["aa bb", "cc", "aa bb"]).best("aa", 1)[0].tolist() == [0]
