"""The vocabulary trainer: right by comparison with a plain one, the same on every run, exact for any count."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.tokenization.training import train_wordpiece
from bertline.tokenization.vocabulary import SPECIAL_TOKENS

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


def test_neither_the_order_of_the_words_nor_the_interpreter_s_hash_seed_matters() -> None:
    code = (
        "from bertline.tokenization.training import train_wordpiece as train\n"
        f"print(*train({dict(reversed(COUNTS.items()))!r}, vocab_size=35, min_frequency=1, max_alphabet=100))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    expected = train_wordpiece(COUNTS, vocab_size=35, min_frequency=1, max_alphabet=100)
    assert printed.stdout.split() == list(expected)


def test_counts_beyond_32_bits_are_exact() -> None:
    # In 32 bits the first count would wrap round to 5, below the second.
    assert trained({"ab": 2**32 + 5, "cd": 100}, 1) == ["ab"]
