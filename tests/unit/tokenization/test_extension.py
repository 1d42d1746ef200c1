"""Words of a corpus for the vocabulary of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.foundation.files import sha256_of_path
from bertline.tokenization.build import build_tokenizer, quality_report
from bertline.tokenization.config import ExtendedTokenizerConfig
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertline.tokenization.words import parts_of_new_tokens, words_to_add
from engines import local

TOKENS = (*SPECIAL_TOKENS, "the", "k", "##e", "##r", "##n", "##el", "##s", "a", "e", "r", "n", "s", "1", "##1", ".")
OLD = Vocabulary(tokens=TOKENS, lowercase=True)


def chosen(word_counts: dict[str, int], num_new: int = 9, min_frequency: int = 1) -> tuple[str, ...]:
    return words_to_add(OLD, word_counts, num_new=num_new, min_frequency=min_frequency)


def test_a_word_is_worth_its_count_times_the_tokens_that_it_saves() -> None:
    # 3 x 3 tokens, 4 x 2, 9 x 1
    assert chosen({"nern": 3, "ren": 4, "es": 9, "the": 99}) == ("es", "nern", "ren")
    assert chosen({"nern": 3, "ren": 4, "es": 9, "the": 99}, num_new=1) == ("es",)


words = st.text(st.sampled_from("aernkst☃"), min_size=1, max_size=7)


@given(word_counts=st.dictionaries(words, st.integers(1, 9), min_size=1, max_size=12), num_new=st.integers(1, 12))
def test_every_chosen_word_is_one_token_then_and_old_words_keep_their_ids(
    word_counts: dict[str, int], num_new: int
) -> None:
    added = chosen(word_counts, num_new)
    old, new = Tokenizer(OLD), Tokenizer(Vocabulary(tokens=(*TOKENS, *added), lowercase=True))
    assert len(set(added)) == len(added) <= num_new and not set(added) & set(TOKENS)
    assert new.encode_literally(added) == [[len(TOKENS) + index] for index in range(len(added))]
    for token in TOKENS[5:]:
        assert token.startswith("##") or new.encode(token) == old.encode(token)
    parts = parts_of_new_tokens(old, new)
    assert parts == old.encode_literally(added) and all(parts)


def test_a_new_subword_has_the_parts_of_its_letters() -> None:
    old, new = Tokenizer(OLD), Tokenizer(Vocabulary(tokens=(*TOKENS, "##ren"), lowercase=True))
    assert [old.tokens(ids) for ids in parts_of_new_tokens(old, new)] == [["r", "##e", "##n"]]


TRAIN = [["The kernel. The kernels, 1.", "The kernel of a seer."]] * 30


def config(folder: Path, **changes: Any) -> ExtendedTokenizerConfig:
    keys: dict[str, Any] = {
        "num_new": 2,
        "min_frequency": 5,
        "sample_characters": 10**9,
        "user_words": (),
        "compare": (),
    }
    return ExtendedTokenizerConfig(
        kind="extended", path=str(folder), revision=None, lowercase=None, **{**keys, **changes}
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_tokenizer(Tokenizer(OLD), tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_the_artifact_has_the_old_tokens_then_the_words_and_says_what_they_changed(
    write_corpus, checkpoint: Path, tmp_path: Path
) -> None:
    corpus = write_corpus(TRAIN, [["A kernel."]])
    headline = build_tokenizer(config(checkpoint), corpus, tmp_path / "out", **local(tmp_path / "out"))
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert tokenizer.vocab == (*TOKENS, "kernel", "seer")
    assert headline["vocab_size"] == len(TOKENS) + 2
    extended = json.loads((tmp_path / "out/manifest.json").read_text())["extended"]
    before = quality_report(Tokenizer(OLD), {"a": 1, "kernel": 1, ".": 1})
    assert (extended["num_old"], extended["num_new"], extended["least_count"]) == (len(TOKENS), 2, 30)
    assert extended["before"]["tokens_per_word"] == before["tokens_per_word"] > headline["tokens_per_word"] == 1
    build_tokenizer(config(checkpoint), corpus, tmp_path / "again", **local(tmp_path / "again", 2))
    assert sha256_of_path(tmp_path / "again") == sha256_of_path(tmp_path / "out")


def test_words_of_the_user_come_beside_the_chosen_ones(write_corpus, checkpoint: Path, tmp_path: Path) -> None:
    corpus = write_corpus(TRAIN, [["A kernel."]])
    asked = config(checkpoint, num_new=1, user_words=("R-1", "The", "seer"))
    build_tokenizer(asked, corpus, tmp_path / "out", **local(tmp_path / "out"))
    tokenizer, old = Tokenizer.load(tmp_path / "out"), Tokenizer.load(checkpoint)
    assert tokenizer.vocab == (*TOKENS, "r-1", "seer", "kernel")
    assert tokenizer.tokens(tokenizer.encode("the R-1 seers.")) == ["the", "r-1", "seer", "##s", "."]
    assert old.tokens(parts_of_new_tokens(old, tokenizer)[0]) == ["r", "[UNK]", "1"]
    said = json.loads((tmp_path / "out/manifest.json").read_text())["user_words"]
    assert said == {"words": ["r-1", "the", "seer"], "in_anyway": ["the"], "not_in_text": ["r-1"]}
