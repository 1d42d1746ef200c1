"""The vocabulary trainer: right by comparison with a plain one, the same on every run, exact for any count."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.foundation.errors import DataError
from bertline.tokenization.vocabulary import SPECIAL_TOKENS
from bertline.tokenization.wordpiece import train_wordpiece

COUNTS = {"low": 5, "lower": 2, "newest": 6, "widest": 3, "lowest": 4, "wide": 2, "new": 8}


def plainly_merged(word_counts: dict[str, int], num_merges: int) -> list[str]:
    """The definition, with every pair counted again before each merge."""
    words = {word: [word[0], *("##" + character for character in word[1:])] for word in word_counts}
    merged: list[str] = []
    known = {token for tokens in words.values() for token in tokens} | {
        character for word in words for character in word
    }
    while len(merged) < num_merges:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, tokens in words.items():
            for pair in pairwise(tokens):
                pairs[pair] += word_counts[word]
        if not pairs:
            return merged
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        token = left + right[2:]
        for tokens in words.values():
            index = 0
            while index < len(tokens) - 1:
                if tokens[index] == left and tokens[index + 1] == right:
                    tokens[index : index + 2] = [token]
                index += 1
        if token not in known:
            known.add(token)
            merged.append(token)
    return merged


def trained(word_counts: dict[str, int], num_merges: int) -> list[str]:
    alphabet = {character for word in word_counts for character in word}
    inside = {character for word in word_counts for character in word[1:]}
    size = len(SPECIAL_TOKENS) + len(alphabet) + len(inside)
    tokens = train_wordpiece(word_counts, vocab_size=size + num_merges, min_frequency=1, max_alphabet=1000)
    return list(tokens[size:])


@settings(max_examples=150)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 20), min_size=1, max_size=12))
def test_merges_are_those_of_the_plain_definition(word_counts: dict[str, int]) -> None:
    expected = plainly_merged(word_counts, 25)
    assert trained(word_counts, len(expected)) == expected


def test_special_tokens_come_first_in_order_then_characters_then_merges() -> None:
    tokens = train_wordpiece({"ab": 3, "b": 1}, vocab_size=9, min_frequency=1, max_alphabet=10)
    assert tokens == (*SPECIAL_TOKENS, "a", "b", "##b", "ab")


def test_the_order_of_the_words_does_not_matter() -> None:
    backwards = dict(reversed(COUNTS.items()))
    arguments = {"vocab_size": 35, "min_frequency": 1, "max_alphabet": 100}
    assert train_wordpiece(COUNTS, **arguments) == train_wordpiece(backwards, **arguments)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_interpreter_s_hash_seed_does_not_matter(hash_seed: str) -> None:
    code = (
        "from bertline.tokenization.wordpiece import train_wordpiece as train\n"
        f"print(*train({COUNTS!r}, vocab_size=35, min_frequency=1, max_alphabet=100))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    expected = train_wordpiece(COUNTS, vocab_size=35, min_frequency=1, max_alphabet=100)
    assert printed.stdout.split() == list(expected)


def test_equal_counts_go_to_the_first_pair_in_alphabetical_order() -> None:
    assert trained({"zy": 2, "ab": 2, "cd": 2}, 3) == ["ab", "cd", "zy"]


def test_counts_beyond_32_bits_are_exact() -> None:
    # In 32 bits the first count would wrap round to 5, below the second.
    assert trained({"ab": 2**32 + 5, "cd": 100}, 1) == ["ab"]


def test_a_token_reached_by_two_pairs_is_listed_once() -> None:
    tokens = trained({"abc": 10, "ab": 5, "xbc": 20, "abcabc": 1}, 5)
    assert len(tokens) == len(set(tokens))


def test_a_vocabulary_larger_than_the_text_supports_names_how_many_tokens_it_does() -> None:
    with pytest.raises(DataError, match=r"tokenizer\.vocab_size is 500.*supports only 12 tokens.*Give more text"):
        train_wordpiece({"abc": 4}, vocab_size=500, min_frequency=1, max_alphabet=10)
    assert len(train_wordpiece({"abc": 4}, vocab_size=12, min_frequency=1, max_alphabet=10)) == 12


def test_pairs_below_the_least_frequency_are_not_merged() -> None:
    with pytest.raises(DataError, match=r"supports only 10 tokens.*min_frequency=3"):
        train_wordpiece({"ab": 3, "cb": 2}, vocab_size=100, min_frequency=3, max_alphabet=10)


def test_an_alphabet_larger_than_the_vocabulary_names_both_keys() -> None:
    with pytest.raises(DataError, match=r"need 14\. Raise tokenizer\.vocab_size, or lower tokenizer\.max_alphabet"):
        train_wordpiece({"abcde": 4, "fabcde": 1}, vocab_size=12, min_frequency=1, max_alphabet=5)


def test_words_with_characters_outside_the_alphabet_are_left_out() -> None:
    tokens = train_wordpiece({"aa": 9, "ab": 8, "cab": 1}, vocab_size=11, min_frequency=1, max_alphabet=2)
    assert tokens == (*SPECIAL_TOKENS, "a", "b", "##a", "##b", "aa", "ab")


def test_words_too_long_to_be_encoded_are_left_out() -> None:
    with pytest.raises(DataError, match="supports only 6 tokens"):
        train_wordpiece({"a" * 101: 50}, vocab_size=7, min_frequency=1, max_alphabet=2)


LONG = {letter * 240: 3 for letter in "abcdefghij"}
IDEOGRAPHS = {chr(0x4E00 + number): 5 for number in range(2600)}


@pytest.mark.parametrize(
    ("words", "cause", "fix", "not_said"),
    [
        (
            LONG,
            "100.0% of its characters are in words of over 100 letters",
            "Put spaces between words",
            "vocab_size to",
        ),
        (
            IDEOGRAPHS,
            "max_alphabet=1000 keeps 1,000 of its 2,600 characters, .* 61.5% of the text",
            "Set tokenizer.max_alphabet=2600 and tokenizer.vocab_size=2605, or",
            "spaces",
        ),
        ({"abc": 4}, "no pair of tokens is left", "Give more text", "spaces"),
    ],
)
def test_too_little_text_names_its_cause_and_what_helps(
    words: dict[str, int], cause: str, fix: str, not_said: str
) -> None:
    settings = {"vocab_size": 8192, "min_frequency": 2, "max_alphabet": 1000}
    with pytest.raises(DataError, match=rf"{cause}.*{fix}") as caught:
        train_wordpiece(words, **settings)
    assert not_said not in str(caught.value)


@pytest.mark.parametrize("asked", [8192, 1200])
def test_who_follows_the_advice_on_the_alphabet_has_every_character(asked: int) -> None:
    with pytest.raises(DataError, match=r"max_alphabet=2600 and tokenizer.vocab_size=2605,"):
        train_wordpiece(IDEOGRAPHS, vocab_size=asked, min_frequency=2, max_alphabet=1000)
    tokens = train_wordpiece(IDEOGRAPHS, vocab_size=2605, min_frequency=2, max_alphabet=2600)
    assert set(IDEOGRAPHS) <= set(tokens)
