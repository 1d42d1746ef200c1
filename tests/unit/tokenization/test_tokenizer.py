"""Encoding as BERT does it."""

from __future__ import annotations

import pytest

from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENS = (*SPECIAL_TOKENS, "cafe", "Café", "un", "##aff", "##able", "[", "]", "mask", "a", ".", "世", "界", "##b")


@pytest.fixture(scope="module")
def uncased() -> Tokenizer:
    return Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True))


def test_a_mask_in_the_text_is_the_mask(uncased: Tokenizer) -> None:
    assert uncased.encode("a [MASK].") == [uncased.vocab.index("a"), uncased.mask_id, uncased.vocab.index(".")]


def test_a_mask_in_text_to_learn_from_is_ordinary_text_and_the_setting_does_not_stick(uncased: Tokenizer) -> None:
    [literal] = uncased.encode_literally(["a [MASK]"])
    assert uncased.tokens(literal) == ["a", "[", "mask", "]"]
    assert uncased.encode_batch(["[MASK]"]) == [[uncased.mask_id]]


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
