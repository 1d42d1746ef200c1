"""Hashes of words and of word n-grams: the same on every machine and in every process."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

# Scripts without spaces between words (Thai to Tibetan, Burmese, Khmer, kana, Han): each character counts as a word.
_SPACELESS = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_MAX_REMEMBERED = 1_000_000
_NOTHING = 0
"""Hash of a word without letters and digits, which is left out."""
# Odd multipliers of 64 bits (the fractional part of the golden ratio; MurmurHash3's finalizer).
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT = np.uint64(32)


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """What two documents are compared by."""

    ngrams: Hashes
    """Hashes of the distinct n-grams, sorted; shape (n-grams,)."""
    bands: tuple[int, ...]
    """One key for each band; documents that share one are candidates. Empty without n-grams."""


def _is_of_word(character: str) -> bool:
    """Return whether a character is a letter, a digit, or a sign on one: the vowels of Indic scripts are signs."""
    return character.isalnum() or unicodedata.category(character).startswith("M")


class _Remembered(dict[str, int]):
    """Hash of every word seen, computed once: text repeats its words."""

    def __missing__(self, word: str) -> int:
        core = (word if word.isalnum() else "".join(filter(_is_of_word, word))).casefold()
        found = int.from_bytes(hashlib.blake2b(core.encode(), digest_size=8).digest(), "little") if core else _NOTHING
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        self[word] = found
        return found


_remembered = _Remembered()


def word_hashes(texts: Iterable[str]) -> Hashes:
    """Return a 64-bit hash for each word of some text, shape (words,); case and punctuation make no difference.

    Args:
        texts: The text in parts; a word does not cross from one to the next.

    Example:
        >>> word_hashes(["The cat, sat."]).tolist() == word_hashes(["the", "- Cat sat"]).tolist()
        True
    """
    words: list[str] = []
    for text in texts:
        if not text.isascii() and _SPACELESS.search(text):
            text = _SPACELESS.sub(r" \g<0> ", text)
        words += text.split()
    found = np.fromiter(map(_remembered.__getitem__, words), np.uint64, len(words))
    return found[found != _NOTHING]


def ngram_hashes(words: Hashes, ngram: int) -> Hashes:
    """Return the hash of each n-gram in order, shape (words - ngram + 1,), or (0,) of shorter text.

    Example:
        >>> words = word_hashes(["a b c a b"])
        >>> sorted(np.unique(ngram_hashes(words, 2), return_counts=True)[1].tolist())
        [1, 1, 2]
    """
    count = max(0, len(words) - ngram + 1)
    total = np.zeros(count, np.uint64)
    for offset in range(ngram):
        total = mixed(total * _STEP + words[offset : offset + count])
    return total


def mixed(values: Hashes) -> Hashes:
    """Spread every bit of each value over all bits."""
    values = (values ^ (values >> _SHIFT)) * _MIX
    return values ^ (values >> _SHIFT)


def combined(columns: Sequence[Hashes]) -> Hashes:
    """Return one hash for each row of some columns, which depends on their order."""
    total = np.zeros_like(columns[0])
    for column in columns:
        total = mixed(total * _STEP + column)
    return total


def is_stub(sentence: str) -> bool:
    """Return whether a sentence is a single word; one of a script without spaces never is.

    Example:
        >>> is_stub("Pub."), is_stub("Pub. L."), is_stub("これは文です。")
        (True, False, False)
    """
    return " " not in sentence and (sentence.isascii() or not _SPACELESS.search(sentence))
