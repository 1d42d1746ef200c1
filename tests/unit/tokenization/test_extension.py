"""Words of a corpus for the vocabulary of a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.foundation.files import sha256_of_path
from bertline.tokenization.build import quality_report
from bertline.tokenization.config import ExtendedTokenizerConfig
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertline.tokenization.words import parts_of_new_tokens, words_to_add

TOKENS = (*SPECIAL_TOKENS, "the", "k", "##e", "##r", "##n", "##el", "##s", "a", "e", "r", "n", "s", "1", "##1", ".")
OLD = Vocabulary(tokens=TOKENS, lowercase=True)


def chosen(word_counts: dict[str, int], num_new: int = 9, min_frequency: int = 1) -> tuple[str, ...]:
    return words_to_add(OLD, word_counts, num_new=num_new, min_frequency=min_frequency)


words = st.text(st.sampled_from("aernkst☃"), min_size=1, max_size=7)


@given(word_counts=st.dictionaries(words, st.integers(1, 9), min_size=1, max_size=12), num_new=st.integers(1, 12))
def test_every_chosen_word_is_one_token_then_and_old_words_keep_their_ids(word_counts, num_new) -> None:
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


@pytest.fixture
def config(tmp_path: Path) -> ExtendedTokenizerConfig:
    save_tokenizer(Tokenizer(OLD), tmp_path / "checkpoint")
    given = {"path": str(tmp_path / "checkpoint"), "revision": None, "lowercase": None, "user_words": (), "compare": ()}
    return ExtendedTokenizerConfig(kind="extended", num_new=2, min_frequency=5, sample_characters=10**9, **given)


def test_the_artifact_has_the_old_tokens_then_the_words_and_says_what_they_changed(build, config) -> None:
    built = build(config, train=TRAIN, validation=[["A kernel."]])
    assert built.tokenizer.vocab == (*TOKENS, "kernel", "seer")
    assert built.headline["vocab_size"] == len(TOKENS) + 2
    extended, before = built.manifest["extended"], quality_report(Tokenizer(OLD), {"a": 1, "kernel": 1, ".": 1})
    assert (extended["num_old"], extended["num_new"], extended["least_count"]) == (len(TOKENS), 2, 30)
    assert extended["before"]["tokens_per_word"] == before["tokens_per_word"] > built.headline["tokens_per_word"] == 1
    assert sha256_of_path(build(config, "again", workers=2).folder) == sha256_of_path(built.folder)


def test_words_of_the_user_come_beside_the_chosen_ones(build, config) -> None:
    asked = replace(config, num_new=1, user_words=("R-1", "The", "seer"))
    built = build(asked, train=TRAIN, validation=[["A kernel."]])
    tokenizer, old = built.tokenizer, Tokenizer(OLD)
    assert tokenizer.vocab == (*TOKENS, "r-1", "seer", "kernel")
    assert tokenizer.tokens(tokenizer.encode("the R-1 seers.")) == ["the", "r-1", "seer", "##s", "."]
    assert old.tokens(parts_of_new_tokens(old, tokenizer)[0]) == ["r", "[UNK]", "1"]
    words = {"words": ["r-1", "the", "seer"], "in_anyway": ["the"], "not_in_text": ["r-1"]}
    assert built.manifest["user_words"] == words
