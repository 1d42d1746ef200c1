"""Counting words."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertline.tokenization.build import count_words
from bertline.tokenization.tokenizer import bert_normalizer
from bertline.tokenization.vocabulary import Vocabulary

UNCASED = Vocabulary(tokens=(), lowercase=True)


def counted_one_by_one(sentences: list[str], vocabulary: Vocabulary) -> Counter[str]:
    normalizer, pre_tokenizer = bert_normalizer(vocabulary), BertPreTokenizer()
    return Counter(
        word for sentence in sentences for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(sentence))
    )


@settings(max_examples=200)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5), st.booleans())
def test_cutting_at_spaces_first_changes_no_count(sentences: list[str], lowercase: bool) -> None:
    vocabulary = Vocabulary(tokens=(), lowercase=lowercase)
    assert count_words(sentences, vocabulary, num_workers=1) == counted_one_by_one(sentences, vocabulary)


def test_the_number_of_workers_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.tokenization.build._BATCH_CHARACTERS", 40)
    sentences = [f"The word{index % 7} and the Word{index % 3}, again." for index in range(60)]
    alone = count_words(sentences, UNCASED, num_workers=1)
    assert alone["the"] == 120
    assert count_words(sentences, UNCASED, num_workers=2) == alone
