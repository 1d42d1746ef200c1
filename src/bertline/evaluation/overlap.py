"""Overlap of each task's test sets with the pretraining corpus, by hashed word n-grams.

Words are those of `corpus.quality.word_hashes`, without case and punctuation. Only the n-grams of the test sets are
stored, so that memory does not depend on the size of the corpus.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertline.corpus.quality.contamination import MIN_WORDS
from bertline.corpus.quality.word_hashes import Hashes, find_ngrams, hashes_of_documents, ngram_hashes
from bertline.corpus.storage import read_shard, shard_paths
from bertline.foundation.parallel import ordered_map

_DOCUMENTS_AT_ONCE = 20_000
NGRAM_BOUNDS = (8, 13)
"""Bounds of n (arXiv 2005.14165, appendix C): shorter n-grams often match by chance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Overlap of one test split with the train documents of the corpus."""

    ngram: int
    """Number n of words of an n-gram."""
    rows: int
    """Number of rows searched for."""
    rows_too_short: int
    """Number of rows with fewer than `MIN_WORDS` words, which were not searched for."""
    rows_with_overlap: int
    """Number of rows with at least one n-gram in the corpus. A row shorter than n must occur as a whole."""
    share_of_rows: float
    """The same as a fraction of `rows`."""
    share_of_ngrams: float
    """Fraction of the n-grams of all rows that occur in the corpus."""
    flagged: bool
    """Whether `share_of_rows` is above the configured limit."""


Overlaps = dict[str, dict[str, Overlap]]
"""Overlaps by task, then by test split."""


def measure_overlap(
    texts: Mapping[str, Sequence[str]], corpus: Path, *, flag: float, num_workers: int
) -> dict[str, Overlap]:
    """Search the corpus for the n-grams of several test splits; the corpus is read once.

    Returns:
        The overlap of each split, by name; `flagged` if the share of its rows is above `flag`.

    Notes:
        n follows appendix C of the GPT-3 paper: the 5th percentile of the row lengths in words, within
        `NGRAM_BOUNDS`; a row shorter than n is searched for as a whole. FLAN uses the same rule. PaLM uses the fraction
        of a row's 8-grams instead, so both fractions are reported.

    References: Brown et al., arXiv 2005.14165, appendix C; Wei et al., arXiv 2109.01652, appendix C; Chowdhery et al.,
    arXiv 2204.02311, section 8.
    """
    lengths: dict[str, int] = {}
    grams: dict[str, list[tuple[int, Hashes]]] = {name: [] for name in texts}
    all_grams: defaultdict[int, list[Hashes]] = defaultdict(list)
    for name, split in texts.items():
        rows = [words for words in hashes_of_documents([text] for text in split) if len(words) >= MIN_WORDS]
        shortest = np.percentile([len(row) for row in rows] or [0], 5, method="lower")
        lengths[name] = int(np.clip(shortest, *NGRAM_BOUNDS))
        for row in rows:
            n = min(lengths[name], len(row))
            grams[name].append((n, ngram_hashes(row, n)))
            all_grams[n].append(grams[name][-1][1])
    wanted = {n: np.unique(np.concatenate(of_length)) for n, of_length in all_grams.items()}
    found = {n: np.zeros(len(hashes), dtype=np.bool_) for n, hashes in wanted.items()}
    if wanted:
        shards = shard_paths(corpus, "train")
        for of_shard in ordered_map(partial(_found_in_shard, wanted=wanted), shards, num_workers=num_workers):
            for n, is_found in of_shard.items():
                found[n] |= is_found
    overlaps = {}
    for name, split in texts.items():
        hits = [found[n][np.searchsorted(wanted[n], of_row)] for n, of_row in grams[name]]
        num_found = sum(bool(of_row.any()) for of_row in hits)
        share = num_found / max(len(hits), 1)
        overlaps[name] = Overlap(
            ngram=lengths[name],
            rows=len(hits),
            rows_too_short=len(split) - len(hits),
            rows_with_overlap=num_found,
            share_of_rows=share,
            share_of_ngrams=sum(int(of_row.sum()) for of_row in hits) / max(sum(map(len, hits)), 1),
            flagged=share > flag,
        )
    return overlaps


def _found_in_shard(path: Path, *, wanted: Mapping[int, Hashes]) -> dict[int, NDArray[np.bool_]]:
    """Return, by n, which of the sorted hashes that are wanted occur in the documents of a shard."""
    documents = (document.sentences for document in read_shard(path))
    found = {n: np.zeros(len(hashes), dtype=np.bool_) for n, hashes in wanted.items()}
    while some := [*islice(documents, _DOCUMENTS_AT_ONCE)]:
        for n, indices, _ in find_ngrams(wanted, some):
            found[n][indices] = True
    return found
