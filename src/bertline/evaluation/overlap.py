"""Overlap of each task's test sets with the pretraining corpus, by hashed word n-grams.

Only the n-grams of the test sets are stored. Words that occur in none of them get the hash 0, and no n-gram contains
such a word. So memory does not depend on the vocabulary of the corpus.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.evaluation.config import OverlapConfig
from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import read_manifest
from bertline.foundation.parallel import ordered_map

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


FEWEST_WORDS = 4
"""Minimum number of words of a row that is searched for: shorter rows match by chance."""
_PERCENTILE = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Overlap of one test split with the train documents of the corpus."""

    ngram: int
    """Number n of words of an n-gram."""
    rows: int
    """Number of rows searched for."""
    rows_too_short: int
    """Number of rows with fewer than `FEWEST_WORDS` words, which were not searched for."""
    share_of_rows: float
    """Fraction of rows with at least one n-gram in the corpus. A row shorter than n must occur as a whole."""
    share_of_ngrams: float
    """Fraction of the n-grams of all rows that occur in the corpus."""
    flagged: bool
    """Whether `share_of_rows` is above the configured limit."""
    touched: tuple[int, ...]
    """Indices in the split of the rows with overlap."""

    def figures(self) -> dict[str, Any]:
        """Return all figures except `touched`, for the manifest."""
        return {key: value for key, value in asdict(self).items() if key != "touched"}


Overlaps = dict[str, dict[str, Overlap]]
"""Overlaps by task, then by test split."""


def measure_overlap(
    texts: Mapping[str, Sequence[str]], corpus: Path, config: OverlapConfig, *, num_workers: int
) -> dict[str, Overlap]:
    """Search the corpus for the n-grams of several test splits; the corpus is read once.

    Returns:
        The overlap of each split, by name.

    Notes:
        n follows appendix C of the GPT-3 paper: the 5th percentile of the row lengths in words, at least 8 (shorter
        n-grams often match by chance) and at most 13; a row shorter than n is searched for as a whole. FLAN uses the
        same rule. PaLM uses the fraction of a row's 8-grams instead, so both fractions are reported.

    References:
        Brown et al., arXiv 2005.14165, appendix C; Wei et al., arXiv 2109.01652, appendix C; Chowdhery et al.,
        arXiv 2204.02311, section 8.
    """
    splits = {name: _Split(rows, config) for name, rows in texts.items()}
    table, grams = table_of([(words, split.ngram) for split in splits.values() for words in split.words])
    found = {length: np.zeros(len(hashes), dtype=np.bool_) for length, hashes in table.by_length.items()}
    if found:
        work = partial(_found_in_row_group, table=table)
        for part in ordered_map(work, _row_groups(corpus), num_workers=num_workers):
            for length, indices in part.items():
                found[length][indices] = True
    lengths = [min(split.ngram, len(words)) for split in splits.values() for words in split.words]
    hits = (
        found[length][np.searchsorted(table.by_length[length], of_row)]
        for length, of_row in zip(lengths, grams, strict=True)
    )
    return {name: split.overlap(hits, config) for name, split in splits.items()}


class _Split:
    """The words of the rows of one test split that are searched for."""

    def __init__(self, texts: Iterable[str], config: OverlapConfig) -> None:
        words = [words_of(text) for text in texts]
        self.places = [place for place, row in enumerate(words) if len(row) >= FEWEST_WORDS]
        self.words = [words[place] for place in self.places]
        self.too_short = len(words) - len(self.words)
        shortest = np.percentile([len(row) for row in self.words] or [0], _PERCENTILE, method="lower")
        self.ngram = int(np.clip(shortest, config.min_ngram, config.max_ngram))

    def overlap(self, hits: Iterator[NDArray[np.bool_]], config: OverlapConfig) -> Overlap:
        """Return the overlap, from whether each n-gram of each row was found; takes as many rows as there are here."""
        of_rows = [next(hits) for _ in self.places]
        touched = [place for place, of_row in zip(self.places, of_rows, strict=True) if of_row.any()]
        num_found, num_all = sum(int(of_row.sum()) for of_row in of_rows), sum(map(len, of_rows))
        share = len(touched) / max(len(self.words), 1)
        return Overlap(
            ngram=self.ngram,
            rows=len(self.words),
            rows_too_short=self.too_short,
            share_of_rows=share,
            share_of_ngrams=num_found / max(num_all, 1),
            flagged=share > config.flag,
            touched=tuple(touched),
        )


def _row_groups(corpus: Path) -> Iterator[tuple[Path, int]]:
    manifest = read_manifest(corpus, kind=KIND, format_version=FORMAT_VERSION)
    for name in manifest["shards"]["train"]:
        with _opened(corpus / name) as shard:
            number = shard.num_row_groups
        yield from ((corpus / name, index) for index in range(number))


def _found_in_row_group(place: tuple[Path, int], *, table: NgramTable) -> dict[int, NDArray[np.int64]]:
    path, index = place
    with _opened(path) as shard:
        documents = shard.read_row_group(index, columns=["sentences"])["sentences"].to_pylist()
    return found_in([" ".join(sentences) for sentences in documents], table)


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path} cannot be read ({error}). Run the corpus stage again.") from error
