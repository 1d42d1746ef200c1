"""Hashed word n-grams: a table of wanted n-grams, and a memory-efficient search for them in a stream of text.

Only the n-grams of the wanted texts are stored. Words that occur in none of them get the hash 0, and no n-gram contains
such a word. So memory does not depend on the vocabulary of the searched text.
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
"""Separator between two texts; no n-gram crosses it."""
# Words are runs of letters and digits; in scripts without spaces every character is a word.
_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"{_BREAK}|[{_SINGLE}]|[^\W_{_SINGLE}]+")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_FEWEST_FILTER_BITS, _MOST_FILTER_BITS = 16, 27

Hashes = NDArray[np.uint64]


def words_of(text: str) -> list[str]:
    """Split a text into lower-cased words without punctuation, as in arXiv 2005.14165, appendix C.

    Example:
        >>> words_of("The kernel's _size_ (3x3), 東京!")
        ['the', 'kernel', 's', 'size', '3x3', '東', '京']
    """
    return [word for word in _WORD.findall(text.lower()) if word != _BREAK]


def hash_of_word(word: str) -> int:
    """Return a 64-bit hash, never 0, that is the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") or 1


@dataclass(frozen=True, slots=True)
class NgramTable:
    """Table of the n-grams to search for."""

    vocabulary: Mapping[str, int]
    """Hash of every word of the n-grams."""
    by_length: Mapping[int, Hashes]
    """Sorted, distinct hashes of the n-grams, by n."""


def ngrams(words: Hashes, longest: int) -> Iterator[tuple[int, Hashes]]:
    """Yield n and the hashes of all n-grams, [len(words) - n + 1] in text order, for n from 1 to `longest`.

    Hashes of n-grams are computed from those of (n - 1)-grams (a polynomial in a constant, modulo 2^64), so all lengths
    together take `longest` passes.
    """
    hashes = np.zeros(len(words), dtype=np.uint64)
    for n in range(1, min(longest, len(words)) + 1):
        hashes = hashes[: len(words) - n + 1] * _MULTIPLIER + words[n - 1 :]
        yield n, hashes


def table_of(rows: Sequence[tuple[Sequence[str], int]]) -> tuple[NgramTable, list[Hashes]]:
    """Return the table of rows, each (words, n), and the n-grams of each row. A row shorter than n is one n-gram."""
    vocabulary = {word: hash_of_word(word) for word in sorted({word for words, _ in rows for word in words})}
    stream = np.array([vocabulary[word] for words, _ in rows for word in words], dtype=np.uint64)
    begins = np.cumsum([0, *(len(words) for words, _ in rows)])
    rows_of_length: dict[int, list[int]] = {}
    for row, (words, n) in enumerate(rows):
        rows_of_length.setdefault(min(n, len(words)), []).append(row)
    of_rows = [np.empty(0, dtype=np.uint64)] * len(rows)
    by_length = {}
    for n, grams in ngrams(stream, max(rows_of_length, default=0)):
        # The n-grams of a row are those of the stream that begin and end within the row.
        for row in rows_of_length.get(n, []):
            of_rows[row] = grams[begins[row] : begins[row + 1] - n + 1].copy()  # a view would keep the whole stream
        if n in rows_of_length:
            by_length[n] = np.unique(np.concatenate([of_rows[row] for row in rows_of_length[n]]))
    return NgramTable(vocabulary, by_length), of_rows


def found_in(texts: Sequence[str], table: NgramTable) -> dict[int, NDArray[np.int64]]:
    """Find the n-grams of the table in texts; return, by n, sorted indices into the table's hashes."""
    if not table.by_length:
        return {}
    words = _WORD.findall(_BREAK.join(texts).lower())
    hashes = np.fromiter(map(table.vocabulary.get, words, repeat(0)), dtype=np.uint64, count=len(words))
    # known[i]: number of nonzero words before i, so a difference of n means that all n words are in the vocabulary.
    known = np.concatenate([[0], np.cumsum(hashes != 0)])
    found = {}
    for n, grams in ngrams(hashes, max(table.by_length)):
        wanted = table.by_length.get(n)
        if wanted is not None:
            whole = grams[known[n:] - known[:-n] == n]
            found[n] = _indices(whole, wanted)
    return found


def _indices(grams: Hashes, wanted: Hashes) -> NDArray[np.int64]:
    # A bit table over the highest hash bits filters candidates; only these are searched.
    bits = min(_MOST_FILTER_BITS, max(_FEWEST_FILTER_BITS, int(len(wanted) * 8).bit_length()))
    shift = np.uint64(64 - bits)
    may_be = np.zeros(1 << bits, dtype=np.bool_)
    may_be[(wanted >> shift).astype(np.int64)] = True
    grams = grams[may_be[(grams >> shift).astype(np.int64)]]
    places = np.minimum(np.searchsorted(wanted, grams), len(wanted) - 1)
    return np.unique(places[wanted[places] == grams])
