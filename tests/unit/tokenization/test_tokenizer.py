"""Encoding as BERT does it."""

from __future__ import annotations

import pytest

from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENS = (*SPECIAL_TOKENS, "cafe", "Café", "un", "##aff", "##able", "[", "]", "mask", "a", ".", "世", "界", "##b")


@pytest.fixture(scope="module")
def uncased() -> Tokenizer:
    return Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True))


@pytest.fixture(scope="module")
def cased() -> Tokenizer:
    return Tokenizer(Vocabulary(tokens=TOKENS, lowercase=False))


def test_uncased_drops_case_and_accents(uncased: Tokenizer) -> None:
    assert uncased.tokens(uncased.encode("Café CAFE cafe\u0301")) == ["cafe"] * 3


def test_cased_keeps_case_and_accents(cased: Tokenizer) -> None:
    assert cased.tokens(cased.encode("Café Cafe")) == ["Café", "[UNK]"]


def test_a_rare_word_is_cut_into_the_longest_tokens(uncased: Tokenizer) -> None:
    assert uncased.tokens(uncased.encode("unaffable.")) == ["un", "##aff", "##able", "."]


def test_a_word_that_cannot_be_cut_is_one_unknown(uncased: Tokenizer) -> None:
    assert uncased.encode("unknowable") == [uncased.unk_id]


def test_a_word_of_more_than_a_hundred_characters_is_unknown(uncased: Tokenizer) -> None:
    assert uncased.encode("a" + "b" * 99) == [uncased.vocab.index("a")] + [uncased.vocab.index("##b")] * 99
    assert uncased.encode("a" + "b" * 100) == [uncased.unk_id]


def test_chinese_characters_are_words_of_their_own(uncased: Tokenizer) -> None:
    assert uncased.tokens(uncased.encode("世界")) == ["世", "界"]


def test_a_mask_in_the_text_is_the_mask(uncased: Tokenizer) -> None:
    assert uncased.encode("a [MASK].") == [uncased.vocab.index("a"), uncased.mask_id, uncased.vocab.index(".")]


def test_a_mask_in_text_to_learn_from_is_ordinary_text_and_the_setting_does_not_stick(uncased: Tokenizer) -> None:
    [literal] = uncased.encode_literally(["a [MASK]"])
    assert uncased.tokens(literal) == ["a", "[", "mask", "]"]
    assert uncased.encode_batch(["[MASK]"]) == [[uncased.mask_id]]


def test_decode_joins_tokens_and_leaves_special_ones_out(uncased: Tokenizer) -> None:
    ids = [uncased.cls_id, *uncased.encode("unaffable cafe"), uncased.sep_id]
    assert uncased.decode(ids) == "unaffable cafe"


def test_special_ids_are_those_of_the_vocabulary_wherever_they_stand() -> None:
    tokens = ("[PAD]", "[unused1]", "[MASK]", "[SEP]", "[CLS]", "[UNK]", "a")
    tokenizer = Tokenizer(Vocabulary(tokens=tokens, lowercase=True))
    assert (tokenizer.pad_id, tokenizer.mask_id, tokenizer.sep_id, tokenizer.cls_id, tokenizer.unk_id) == (
        0,
        2,
        3,
        4,
        5,
    )
    assert tokenizer.special_ids == {0, 2, 3, 4, 5}
    assert tokenizer.encode("b") == [5]
