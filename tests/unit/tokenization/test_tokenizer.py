"""Encoding as BERT does it, where tokens stand in the text as it was given, and the files of a tokenizer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.tokenization.storage import copy_tokenizer, save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer, bert_normalizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary


def tokenizer_of(*tokens: str, lowercase: bool = True) -> Tokenizer:
    return Tokenizer(Vocabulary(tokens=(*SPECIAL_TOKENS, *tokens), lowercase=lowercase))


def test_a_mask_in_the_text_is_the_mask_but_in_text_to_learn_from_ordinary_text() -> None:
    tokenizer = tokenizer_of("[", "]", "mask", "a", ".")
    [literal] = tokenizer.encode_literally(["a [MASK]."])
    assert tokenizer.tokens(literal) == ["a", "[", "mask", "]", "."]
    assert tokenizer.encode("a [MASK].") == [tokenizer.vocab.index("a"), tokenizer.mask_id, tokenizer.vocab.index(".")]
    assert tokenizer.encode("[MASK]") == [tokenizer.mask_id]  # the setting does not stick


def test_special_ids_are_those_of_the_vocabulary_wherever_they_stand() -> None:
    tokens = ("[PAD]", "[unused1]", "[MASK]", "[SEP]", "[CLS]", "[UNK]", "a")
    tokenizer = Tokenizer(Vocabulary(tokens=tokens, lowercase=True))
    ids = (tokenizer.pad_id, tokenizer.mask_id, tokenizer.sep_id, tokenizer.cls_id, tokenizer.unk_id)
    assert ids == (0, 2, 3, 4, 5) and tokenizer.special_ids == set(ids)
    assert tokenizer.encode("b") == [5]


LETTERS = "abcdeit東京éÉ.,-[]"
TOKENS = sorted({*"abcdeéitlmnoprsuxyzABÉT", "東", "京", *".,-[]", "cafe", "istanbul", "sep", "ete"})
CONTINUATIONS = [f"##{letter}" for letter in "abcdeéitlmnoprsuxyz"]


@pytest.mark.parametrize("lowercase", [True, False])
@given(text=st.one_of(st.text(LETTERS + " \u0301\u200b\tİ", max_size=30), st.text(max_size=30)))
def test_places_follow_each_other_and_hold_what_the_token_says(lowercase: bool, text: str) -> None:
    tokenizer = PLACED[lowercase]
    [(ids, places)] = tokenizer.encode_with_places([text])
    assert [ids] == tokenizer.encode_literally([text])
    assert all(0 <= place <= len(text) for pair in places for place in pair)
    assert [start for start, _ in places] == sorted(start for start, _ in places)
    assert [stop for _, stop in places] == sorted(stop for _, stop in places)
    normalize = bert_normalizer(tokenizer.vocabulary).normalize_str
    for token, (start, stop) in zip(ids, places, strict=True):
        assert start < stop
        if token != tokenizer.unk_id:
            assert tokenizer.vocab[token].removeprefix("##") in normalize(text[start:stop])


PLACED = {lowercase: tokenizer_of(*TOKENS, *CONTINUATIONS, lowercase=lowercase) for lowercase in (True, False)}


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kept", [["tokenizer.json", "vocab.txt", "tokenizer_config.json"], ["tokenizer.json"]])
def test_what_is_saved_loads_the_same(tmp_path, lowercase: bool, kept: list[str]) -> None:
    tokenizer = tokenizer_of("cat", "Cat", "##s", lowercase=lowercase)
    save_tokenizer(tokenizer, tmp_path)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["do_lower_case"] is lowercase
    for path in tmp_path.iterdir():
        if path.name not in kept:
            path.unlink()
    loaded = Tokenizer.load(tmp_path)
    assert loaded.vocabulary == tokenizer.vocabulary
    assert loaded.encode("Cats cat") == tokenizer.encode("Cats cat")


def test_transformers_is_told_where_a_model_has_a_single_token_type(tmp_path) -> None:
    source = tmp_path / "source"
    save_tokenizer(tokenizer_of("cat"), source)
    for num_types, expected in ((1, ["input_ids", "attention_mask"]), (6, None)):
        target = tmp_path / str(num_types)
        target.mkdir()
        (target / "config.json").write_text(json.dumps({"type_vocab_size": num_types}))
        copy_tokenizer(source, target)
        assert json.loads((target / "tokenizer_config.json").read_text()).get("model_input_names") == expected
        source = target  # its setting was that of another model
