"""ROUGE as the package rouge-score counts it, and the greedy choice of sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from bertline.kinds.summarisation import chosen_sentences
from bertline.tasks.metrics.rouge import rouge

KINDS = ["rouge1", "rouge2", "rougeL"]
words = st.sampled_from(["cat", "Cat", "sat", "on", "the", "mat", "42", "é", "don't", "東京", "-", "\n", "naïve", "İx"])
texts = st.one_of(st.lists(words, max_size=14).map(" ".join), st.text(max_size=20))


@given(summary=texts, gold=texts)
def test_every_kind_equals_the_reference(summary, gold):
    expected = RougeScorer(KINDS, use_stemmer=False).score(gold, summary)
    assert rouge(summary, gold) == pytest.approx({kind: expected[kind].fmeasure for kind in KINDS}, abs=1e-12)


def quality(sentences, summary):
    """ROUGE-1 and ROUGE-2 of sentences between which no pair of words is counted: a word that is nowhere else."""
    scorer = RougeScorer(["rouge1", "rouge2"])
    scores = scorer.score(summary, " ".join(sentences))
    return scores["rouge1"].fmeasure + scores["rouge2"].fmeasure


sentence = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5).map(" ".join)


@given(sentences=st.lists(sentence, min_size=1, max_size=6), summary=sentence, most=st.integers(1, 4))
def test_the_first_sentence_chosen_is_the_best_single_one_and_no_other_is_left_that_helps(sentences, summary, most):
    chosen = chosen_sentences(sentences, summary, most=most)
    assert len(chosen) == len(sentences) and sum(chosen) <= most
    singles = [quality([each], summary) for each in sentences]
    alone = chosen_sentences(sentences, summary, most=1)
    if max(singles) > 0:
        # Approximately: sums of equal F1 scores may differ in the last bit.
        assert singles[alone.index(1)] == pytest.approx(max(singles))
        assert chosen[alone.index(1)] == 1
    else:
        assert not any(chosen)
