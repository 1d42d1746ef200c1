"""Overlap of each task's test sets with the pretraining corpus, by hashed word n-grams.

Words are those of `corpus.quality.word_hashes`, without case and punctuation. Only the n-grams of the test sets are
stored, so that memory does not depend on the size of the corpus.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bertline.corpus.quality.contamination import MIN_WORDS
from bertline.corpus.quality.word_hashes import Hashes, NgramSearch, hashes_of_documents, ngram_hashes
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.evaluation.config import OverlapConfig
from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import read_manifest
from bertline.foundation.parallel import ordered_map


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Overlap of one test split with the train documents of the corpus."""

    ngram: int
    """Number n of words of an n-gram."""
    rows: int
    """Number of rows searched for."""
    rows_too_short: int
    """Number of rows with fewer than `MIN_WORDS` words, which were not searched for."""
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

    References: Brown et al., arXiv 2005.14165, appendix C; Wei et al., arXiv 2109.01652, appendix C; Chowdhery et al.,
    arXiv 2204.02311, section 8.
    """
    lengths: dict[str, int] = {}
    grams: dict[str, dict[int, tuple[int, Hashes]]] = {name: {} for name in texts}
    all_grams: defaultdict[int, list[Hashes]] = defaultdict(list)
    for name, split in texts.items():
        words_of_rows = hashes_of_documents([text] for text in split)
        rows = {place: words for place, words in enumerate(words_of_rows) if len(words) >= MIN_WORDS}
        shortest = np.percentile([len(row) for row in rows.values()] or [0], 5, method="lower")
        lengths[name] = int(np.clip(shortest, config.min_ngram, config.max_ngram))
        for place, row in rows.items():
            n = min(lengths[name], len(row))
            grams[name][place] = n, ngram_hashes(row, n)
            all_grams[n].append(grams[name][place][1])
    wanted = {n: np.unique(np.concatenate(of_length)) for n, of_length in all_grams.items()}
    found = {n: np.zeros(len(hashes), dtype=np.bool_) for n, hashes in wanted.items()}
    if wanted:
        manifest = read_manifest(corpus, kind=KIND, format_version=FORMAT_VERSION)
        shards = [corpus / name for name in manifest["shards"]["train"]]
        row_groups = ((path, index) for path in shards for index in range(_opened(path).num_row_groups))
        for part in ordered_map(partial(_found_in_row_group, wanted=wanted), row_groups, num_workers=num_workers):
            for n, indices in part.items():
                found[n][indices] = True
    overlaps = {}
    for name, split in texts.items():
        hits = {place: found[n][np.searchsorted(wanted[n], of_row)] for place, (n, of_row) in grams[name].items()}
        touched = tuple(place for place, of_row in hits.items() if of_row.any())
        share = len(touched) / max(len(hits), 1)
        overlaps[name] = Overlap(
            ngram=lengths[name],
            rows=len(hits),
            rows_too_short=len(split) - len(hits),
            share_of_rows=share,
            share_of_ngrams=sum(int(of_row.sum()) for of_row in hits.values()) / max(sum(map(len, hits.values())), 1),
            flagged=share > config.flag,
            touched=touched,
        )
    return overlaps


def _found_in_row_group(place: tuple[Path, int], *, wanted: Mapping[int, Hashes]) -> dict[int, NDArray[np.int64]]:
    """Return, by n, indices of the sorted hashes that are wanted which occur in the documents of a row group."""
    path, index = place
    with _opened(path) as shard:
        documents = shard.read_row_group(index, columns=["sentences"])["sentences"].to_pylist()
    return {n: np.unique(indices) for n, indices, _ in NgramSearch(wanted).found_in(documents)}


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path} cannot be read ({error}). Run the corpus stage again.") from error
