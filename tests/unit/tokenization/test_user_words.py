"""Words that the user wants whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from bertline.foundation.errors import DataError
from bertline.tokenization.counting import WordSplitter
from bertline.tokenization.tokenizer import Tokenizer, sentence_encoder
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertline.tokenization.words import read_user_words, with_user_words

UNCASED = Vocabulary(tokens=(), lowercase=True)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ALPHABET = (*LETTERS, *(f"##{letter}" for letter in LETTERS), *".,-+")
USER_WORDS = ("Node.js", "series", "Zürich", "zymurgy")
TRAIN = [
    [f"The {noun}s {verb} the array of node.js, not js.", f"{verb.title()}ing a series returns {noun}, or none."]
    for noun in ("matrix", "vector", "kernel", "frame", "tensor", "index")
    for verb in ("sort", "filter", "reshape", "compute", "transform")
]


def read(given: tuple[str, ...] | str) -> dict[str, bool]:
    return read_user_words(given, WordSplitter(UNCASED))


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("machine learning", "is more than one word"),
        ("世界", "is more than one word"),
        ("\u0301", "has no characters"),
        ("##ing", "stands for something else"),
        ("[MASK]", "stands for something else"),
        ("x" * 101, "has 101 characters; a word has at most 100"),
    ],
)
def test_what_cannot_be_one_token_is_an_error_with_its_place(tmp_path: Path, word: str, reason: str) -> None:
    with pytest.raises(DataError, match=rf"tokenizer\.user_words\[1\]: .* {reason}"):
        read(("fine", word))
    (tmp_path / "words.txt").write_text(f"fine\n\n{word}\n")
    with pytest.raises(DataError, match=rf"words\.txt, line 3: .* {reason}"):
        read(str(tmp_path / "words.txt"))


def test_the_least_useful_tokens_give_way_but_no_character_and_no_word_of_the_user() -> None:
    tokens = (*SPECIAL_TOKENS, "a", "b", "##b", "ab", "abb")
    assert with_user_words(tokens, ("ab", "c", "d-e"), size=11) == (*SPECIAL_TOKENS, "a", "b", "##b", "ab", "c", "d-e")
    with pytest.raises(DataError, match=r"vocab_size is 9, which has no room for the 2 words"):
        with_user_words(tokens, ("c", "d"), size=9)


def test_they_are_tokens_of_a_trained_vocabulary_whatever_the_text_has(build, config) -> None:
    built = build(replace(config, user_words=USER_WORDS), train=TRAIN, validation=[["Node.js."]])
    tokenizer, facts = built.tokenizer, built.manifest["user_words"]
    assert tokenizer.vocab_size == 110
    tokens = tokenizer.tokens(tokenizer.encode("Zymurgy in Zürich: node.js, SERIES"))
    assert {"zymurgy", "zurich", "node.js", "series"} <= set(tokens)
    assert facts["words"] == ["node.js", "series", "zurich", "zymurgy"]
    assert (facts["in_anyway"], facts["not_in_text"]) == (["series"], ["zurich", "zymurgy"])


def test_a_file_gives_the_same_words_as_a_list(tmp_path) -> None:
    (tmp_path / "words.txt").write_text("\n".join(USER_WORDS))
    assert read(str(tmp_path / "words.txt")) == read(USER_WORDS)


UNSPLIT = ("c++", "c+", "a-b", "b-c", "x.")
TOKENIZER = Tokenizer(Vocabulary(tokens=(*SPECIAL_TOKENS, *ALPHABET, *UNSPLIT), lowercase=True, unsplit=UNSPLIT))


@hypothesis.given(
    text=st.text(st.one_of(st.sampled_from("abcx+-. _éE\u0301"), st.characters(exclude_categories=["Cs"])))
)
def test_the_fast_encoder_finds_them_where_the_tokenizers_library_does(text: str) -> None:
    ids, _ = sentence_encoder(TOKENIZER, "uint16")([text])
    assert ids.tolist() == TOKENIZER.encode_literally([text])[0]
