"""The ids are those of transformers.BertTokenizerFast, for every folder we write and for published layouts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, BertTokenizerFast

from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéÉ0123456789.,!?'-[]()世界ßσς"
TOKENS = (
    *SPECIAL_TOKENS,
    *_CHARACTERS,
    *(f"##{character}" for character in _CHARACTERS if character.isalnum()),
    *("cafe", "café", "Café", "the", "The", "##ing", "un", "##aff", "##able", "mask", "##lo", "hel"),
)
TEXTS = [
    "",
    "   ",
    "Café CAFÉ cafe\u0301 naïve",
    "unaffable Hello the THE",
    "世界 hello世界x",
    "a" * 100,
    "a" * 101,
    "tab\there\nnew\r\nline \x00\x01 con\x1ctrol \x85 next \ufffd end",
    "emoji 🙂 family 👩‍👩‍👧 flag 🇩🇪",
    "İstanbul ΟΔΟΣ ß ẞ ŉ",
    "[MASK] is [mask] and [SEP] or [CLS]x[UNK]",
    "don't stop-me (now), 3.14!",
    "zero\u200bwidth non\u00a0breaking soft\u00adhyphen",
]


@pytest.fixture(
    scope="module", params=[(True, None), (False, None), (True, False)], ids=["uncased", "cased", "accents kept"]
)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    lowercase, strip_accents = request.param
    vocabulary = Vocabulary(tokens=TOKENS, lowercase=lowercase, strip_accents=strip_accents)
    save_tokenizer(Tokenizer(vocabulary), folder)
    return folder


@pytest.fixture(scope="module")
def ours(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> BertTokenizerFast:
    return BertTokenizerFast.from_pretrained(folder)


def test_ids_are_equal_for_difficult_text(ours: Tokenizer, theirs: BertTokenizerFast) -> None:
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), text


@settings(max_examples=300)
@given(text=st.text(st.one_of(st.sampled_from(_CHARACTERS + "  "), st.characters(exclude_categories=["Cs"]))))
def test_ids_are_equal_for_any_text(ours: Tokenizer, theirs: BertTokenizerFast, text: str) -> None:
    assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_folder_that_transformers_wrote_loads_with_the_same_ids(tmp_path: Path, lowercase: bool) -> None:
    vocab = {token: index for index, token in enumerate(TOKENS)}
    theirs = BertTokenizerFast(vocab=vocab, do_lower_case=lowercase)
    theirs.save_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)


UNSPLIT = ("covid-19", "c++", "c+", "un.")


@pytest.fixture(scope="module")
def with_unsplit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unsplit")
    tokens = (*TOKENS, "+", "covid-19", "c++", "c+", "un.")
    save_tokenizer(Tokenizer(Vocabulary(tokens=tokens, lowercase=True, unsplit=UNSPLIT)), folder)
    return folder


@settings(max_examples=300)
@given(
    text=st.lists(
        st.one_of(
            st.sampled_from([*UNSPLIT, "COVID-19", "C++", " ", "_", "-", "s", "\u0301", "[MASK]", "世"]),
            st.text(max_size=3),
        )
    ).map("".join)
)
def test_words_that_are_never_split_are_whole_in_transformers_too(with_unsplit: Path, text: str) -> None:
    ours = Tokenizer.load(with_unsplit).encode(text)
    for theirs in (AutoTokenizer.from_pretrained(with_unsplit), BertTokenizerFast.from_pretrained(with_unsplit)):
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours
