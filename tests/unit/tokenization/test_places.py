"""Tokens know where they stand in the text as it was given."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.tokenization.tokenizer import Tokenizer, bert_normalizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

LETTERS = "abcdeit東京éÉ.,-[]"


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizer(request):
    normalised = sorted({*"abcdeéitlmnoprsuxyzABÉT", "東", "京", *".,-[]", "cafe", "istanbul", "sep", "ete"})
    tokens = [*SPECIAL_TOKENS, *normalised, *(f"##{letter}" for letter in "abcdeéitlmnoprsuxyz")]
    return Tokenizer(Vocabulary(tokens=tuple(tokens), lowercase=request.param))


def stretches(tokenizer, text):
    [(ids, places)] = tokenizer.encode_with_places([text])
    return [(tokenizer.vocab[token], text[start:stop]) for token, (start, stop) in zip(ids, places, strict=True)]


@pytest.fixture(scope="module")
def uncased():
    tokens = [*SPECIAL_TOKENS, "cafe", "istanbul", "et", "##e", "東", "京", "b", "[", "]", "sep", "한"]
    hangul = unicodedata.normalize("NFD", "한")
    return Tokenizer(Vocabulary(tokens=(*tokens, hangul[0], *(f"##{part}" for part in hangul[1:])), lowercase=True))


def test_accents_and_case_that_change_the_length_do_not_move_what_follows(uncased):
    assert len("İ".lower()) == 2
    assert stretches(uncased, "Café  İstanbul été") == [
        ("cafe", "Café"), ("istanbul", "İstanbul"), ("et", "ét"), ("##e", "é"),
    ]  # fmt: skip


def test_a_special_token_written_in_the_text_is_cut_like_any_word(uncased):
    assert stretches(uncased, "[SEP]") == [("[", "["), ("sep", "SEP"), ("]", "]")]


@given(text=st.one_of(st.text(LETTERS + " \u0301\u200b\tİ", max_size=30), st.text(max_size=30)))
def test_places_follow_each_other_and_hold_what_the_token_says(tokenizer, text):
    [(ids, places)] = tokenizer.encode_with_places([text])
    assert [ids] == tokenizer.encode_literally([text])
    flat = [place for pair in places for place in pair]
    assert all(0 <= place <= len(text) for place in flat)
    assert [start for start, _ in places] == sorted(start for start, _ in places)
    assert [stop for _, stop in places] == sorted(stop for _, stop in places)
    normalize = bert_normalizer(tokenizer.vocabulary).normalize_str
    for token, (start, stop) in zip(ids, places, strict=True):
        assert start < stop
        if token != tokenizer.unk_id:
            assert tokenizer.vocab[token].removeprefix("##") in normalize(text[start:stop])
