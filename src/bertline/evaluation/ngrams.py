"""Hashed word n-grams: what is looked for, and finding it in a stream of text with little memory.

Only the n-grams of the texts that are looked for are kept. A word that stands in none of them is 0, and no n-gram goes
through it; so the vocabulary of the searched text, however large, costs nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

_BREAK = "\x00"
"""Between two texts: no n-gram goes from one to the next."""
# Runs of letters and digits, whatever stands between them; scripts without spaces give a word a character.
_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"{_BREAK}|[{_SINGLE}]|[^\W_{_SINGLE}]+")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_FEWEST_FILTER_BITS, _MOST_FILTER_BITS = 16, 27

Hashes = NDArray[np.uint64]


def words_of(text: str) -> list[str]:
    """Words in lower case, without punctuation (as arXiv 2005.14165, appendix C, compares them).

    Example:
        >>> words_of("The kernel's _size_ (3x3), 東京!")
        ['the', 'kernel', 's', 'size', '3x3', '東', '京']
    """
    return [word for word in _WORD.findall(text.lower()) if word != _BREAK]


def hash_of_word(word: str) -> int:
    """64 bits, never 0; the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") or 1


@dataclass(frozen=True, slots=True)
class NgramTable:
    """The n-grams that are looked for."""

    vocabulary: Mapping[str, int]
    """Every word of theirs with its hash."""
    by_length: Mapping[int, Hashes]
    """Number of words to the sorted, distinct hashes of n-grams."""


def ngrams(words: Hashes, longest: int) -> Iterator[tuple[int, Hashes]]:
    """Hashes of all n-grams for n from 1 to `longest`, each [len(words) - n + 1], in the order of the text.

    That of n words is made of that of n - 1 (a polynomial in a constant, modulo 2 to the 64), so all lengths together
    cost as many passes as the longest has words.
    """
    hashes = np.zeros(len(words), dtype=np.uint64)
    for n in range(1, min(longest, len(words)) + 1):
        hashes = hashes[: len(words) - n + 1] * _MULTIPLIER + words[n - 1 :]
        yield n, hashes


def table_of(rows: Sequence[tuple[Sequence[str], int]]) -> tuple[NgramTable, list[Hashes]]:
    """The table of some rows, each words and n, and the n-grams of each row; a shorter row is one n-gram, whole."""
    vocabulary = {word: hash_of_word(word) for word in sorted({word for words, _ in rows for word in words})}
    stream = np.array([vocabulary[word] for words, _ in rows for word in words], dtype=np.uint64)
    begins = np.cumsum([0, *(len(words) for words, _ in rows)])
    rows_of_length: dict[int, list[int]] = {}
    for row, (words, n) in enumerate(rows):
        rows_of_length.setdefault(min(n, len(words)), []).append(row)
    of_rows = [np.empty(0, dtype=np.uint64)] * len(rows)
    by_length = {}
    for n, grams in ngrams(stream, max(rows_of_length, default=0)):
        # Of the n-grams of the whole stream, those of a row begin in it and end in it.
        for row in rows_of_length.get(n, []):
            of_rows[row] = grams[begins[row] : begins[row + 1] - n + 1].copy()  # a view would keep the whole stream
        if n in rows_of_length:
            by_length[n] = np.unique(np.concatenate([of_rows[row] for row in rows_of_length[n]]))
    return NgramTable(vocabulary, by_length), of_rows


def found_in(texts: Sequence[str], table: NgramTable) -> dict[int, NDArray[np.int64]]:
    """Which n-grams of the table stand in some texts: by length, indices into its hashes, rising."""
    if not table.by_length:
        return {}
    words = _WORD.findall(_BREAK.join(texts).lower())
    hashes = np.fromiter(map(table.vocabulary.get, words, repeat(0)), dtype=np.uint64, count=len(words))
    # known[i]: words before place i that are not 0, so a difference of n says that a run of n words is whole.
    known = np.concatenate([[0], np.cumsum(hashes != 0)])
    found = {}
    for n, grams in ngrams(hashes, max(table.by_length)):
        wanted = table.by_length.get(n)
        if wanted is not None:
            whole = grams[known[n:] - known[:-n] == n]
            found[n] = _indices(whole, wanted)
    return found


def _indices(grams: Hashes, wanted: Hashes) -> NDArray[np.int64]:
    # A table of the highest bits lets through the few that may be wanted; only these are looked up.
    bits = min(_MOST_FILTER_BITS, max(_FEWEST_FILTER_BITS, int(len(wanted) * 8).bit_length()))
    shift = np.uint64(64 - bits)
    may_be = np.zeros(1 << bits, dtype=np.bool_)
    may_be[(wanted >> shift).astype(np.int64)] = True
    grams = grams[may_be[(grams >> shift).astype(np.int64)]]
    places = np.minimum(np.searchsorted(wanted, grams), len(wanted) - 1)
    return np.unique(places[wanted[places] == grams])
