"""Hashes of words and of word n-grams: the same on every machine and in every process."""

import re
import string
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

# Scripts without spaces between words (Thai to Tibetan, Burmese, Khmer, kana, Han): each character
# counts as a word.
_SPACELESS = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
# What `str.split` takes for white space becomes a space, and capitals become small letters.
_WHITE = bytes(code for code in range(128) if chr(code).isspace())
_TO_WORDS = bytes.maketrans(
    _WHITE + string.ascii_uppercase.encode(), b" " * len(_WHITE) + string.ascii_lowercase.encode()
)
_WITHOUT_MEANING = bytes(code for code in range(128) if not chr(code).isalnum() and not chr(code).isspace())
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
# Odd multipliers of 64 bits (the fractional part of the golden ratio; MurmurHash3's finalizer).
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT = np.uint64(32)


def _is_of_word(character: str) -> bool:
    """Return whether a character is a letter, a digit, or a sign on one: the vowels of Indic scripts are signs."""
    return character.isalnum() or unicodedata.category(character).startswith("M")


@lru_cache(1_000_000)
def _core(word: str) -> str:
    """Return the letters and digits of a word, remembered: text repeats its words."""
    return (word if word.isalnum() else "".join(filter(_is_of_word, word))).casefold()


def word_hashes(texts: Iterable[str]) -> Hashes:
    """Return a 64-bit hash for each word of some text, shape (words,); case and punctuation make no difference."""
    return hashes_of_documents([texts])[0]


def hashes_of_documents(documents: Iterable[Iterable[str]]) -> list[Hashes]:
    """Return the hashes of the words of each document, as `word_hashes` does, of all documents at once."""
    contents = [_cores_of(texts) for texts in documents]
    # Eight bytes are read from each place of a word, which may be beyond the end of the last one.
    content = b" ".join([*contents, bytes(8)])
    characters = np.frombuffer(content, np.uint8)
    stops = np.flatnonzero(characters == ord(" "))
    starts = np.concatenate([np.zeros(1, stops.dtype), stops[:-1] + 1])[: len(stops)]
    filled = stops > starts
    starts, sizes = starts[filled], (stops - starts)[filled]
    # A document ends where the next one begins: behind a space.
    ends = np.searchsorted(starts, np.cumsum([len(one) + 1 for one in contents]))
    return np.split(_hashes(content, starts, sizes), ends[:-1]) if contents else []


def _cores_of(texts: Iterable[str]) -> bytes:
    """Return the words of some text in UTF-8, reduced to what they are compared by, with spaces between them."""
    parts = []
    for text in texts:
        if not text.isascii():
            if _SPACELESS.search(text):
                text = _SPACELESS.sub(r" \g<0> ", text)
            text = " ".join(map(_core, text.split()))
        parts.append(text)
    return " ".join(parts).encode().translate(_TO_WORDS, _WITHOUT_MEANING)


def _hashes(content: bytes, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Hashes:
    """Hash the words that begin at some places of `content`, 8 bytes of all words at a time."""
    hashes = np.zeros(len(starts), np.uint64)
    eight = np.ndarray(len(content) - 7, "<u8", content, strides=(1,))  # from each place
    words, start, left = np.arange(len(starts)), starts, sizes
    while len(words):
        part = eight[start] & _FIRST_BYTES[np.minimum(left, 8)]
        hashes[words] = mixed(hashes[words] * _STEP + part)
        more = left > 8
        words, start, left = words[more], start[more] + 8, left[more] - 8
    return hashes


def ngram_hashes(words: Hashes, ngram: int) -> Hashes:
    """Return the hash of each n-gram in order, shape (words - ngram + 1,), or (0,) of shorter text.

    >>> words = word_hashes(["a b c a b"])
    >>> sorted(np.unique(ngram_hashes(words, 2), return_counts=True)[1].tolist())
    [1, 1, 2]
    """
    return next((hashes for _, hashes in ngrams_by_length(words, {ngram})), np.empty(0, np.uint64))


def ngrams_by_length(words: Hashes, lengths: Collection[int]) -> Iterator[tuple[int, Hashes]]:
    """Yield n and what `ngram_hashes` returns, for each length n up to that of the text.

    The hash of an n-gram comes from that of its first n - 1 words, so that all lengths cost as much as the longest.
    """
    hashes = np.zeros(len(words), np.uint64)
    for n in range(1, min(max(lengths), len(words)) + 1):
        hashes = mixed(hashes[: len(words) - n + 1] * _STEP + words[n - 1 :])
        if n in lengths:
            yield n, hashes


def find_ngrams(
    wanted: Mapping[int, Hashes], texts: Iterable[Iterable[str]]
) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield n and [places] the indices of the wanted n-grams that are found, and of the texts that have them.

    Args:
        wanted: Sorted hashes of the n-grams, by their number of words.
        texts: Each may consist of several parts, such as sentences, which an n-gram may cross.
    """
    of_texts = hashes_of_documents(texts)
    words = np.concatenate([*of_texts, np.empty(0, np.uint64)])
    text_of_word = np.repeat(np.arange(len(of_texts)), [len(each) for each in of_texts])
    for n, ngrams in ngrams_by_length(words, wanted):
        indices = np.minimum(np.searchsorted(wanted[n], ngrams), len(wanted[n]) - 1)
        is_inside = text_of_word[: len(ngrams)] == text_of_word[n - 1 :]
        starts = np.flatnonzero((wanted[n][indices] == ngrams) & is_inside)
        yield n, indices[starts], text_of_word[starts]


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
