"""The quality rules over the stream of prepared documents: workers find out, one process decides in reading order."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from types import TracebackType

import numpy as np
from rensa import RMinHash

from bertline.corpus.document import SourceDocument
from bertline.corpus.preparation import PreparedDocument
from bertline.corpus.quality.contamination import read_needles
from bertline.corpus.quality.drops import DropSamples
from bertline.corpus.quality.word_hashes import Hashes, Signature, combined, hashes_of_documents, ngram_hashes

# Near duplicates by MinHash and locality-sensitive hashing; every candidate is compared exactly.
#
# References:
#     Broder, "On the resemblance and containment of documents", 1997, section 2 (shingles and MinHash).
#     Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4 (bands of signatures).

# One thread: workers are the parallelism, and threads of rensa that wait for a busy core only burn time.
os.environ.setdefault("RAYON_NUM_THREADS", "1")


# Two documents are candidates with probability 1 - (1 - J**rows)**bands: 0.97 at J = 0.7, 0.999 at 0.8.
NUM_BANDS = 20
ROWS = 5
_SEED = 42
# What many documents share, such as a template, fills bands of its own; documents that are nearly equal share other
# bands too. Without the two limits a thousand documents just below the threshold are compared pair by pair.
MAX_OF_BAND = 1000
"""Documents of one band that are remembered: the first ones."""
MAX_COMPARED = 32
"""Candidates that a document is compared with: those with the most bands in common, the earliest of equal ones."""
_ITEM_BYTES = 8


@dataclass(frozen=True, slots=True)
class Partner:
    """An earlier document that is nearly equal."""

    index: int
    """Number of the document in the order in which they were kept."""
    similarity: float
    """Jaccard similarity of the n-grams."""


def signatures(documents: Iterable[Sequence[str]], ngram: int) -> list[Signature]:
    """Return the signature of each document; a pure function, so that workers can compute it.

    Args:
        documents: Sentences of each document.
        ngram: Words of an n-gram. Shorter documents have none and are near duplicates of nothing.
    """
    of_each = [_distinct(ngram_hashes(words, ngram)) for words in hashes_of_documents(documents)]
    filled = [ngrams for ngrams in of_each if len(ngrams)]
    if not filled:
        return [Signature(ngrams, ()) for ngrams in of_each]
    ends = np.cumsum([0, *map(len, filled)], dtype=np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(np.concatenate(filled), ends, NUM_BANDS * ROWS, _SEED)
    rows = np.asarray(matrix.to_rows(), np.uint64).reshape(len(filled), NUM_BANDS, ROWS)
    band = np.broadcast_to(np.arange(NUM_BANDS, dtype=np.uint64), rows.shape[:2])
    keys = iter(combined([band, *np.moveaxis(rows, 2, 0)]).tolist())
    return [Signature(ngrams, tuple(next(keys)) if len(ngrams) else ()) for ngrams in of_each]


def _distinct(hashes: Hashes) -> Hashes:
    """Sort hashes and leave out repeated ones; `np.unique`, which makes a table of them first, is five times slower."""
    ordered = np.sort(hashes)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def similarity(a: Hashes, b: Hashes) -> float:
    """Return the Jaccard similarity of two sorted arrays of distinct hashes.

    Example:
        >>> similarity(np.array([1, 2, 3], np.uint64), np.array([2, 3, 4], np.uint64))
        0.5
    """
    both = np.concatenate([a, b])
    both.sort()
    shared = int(np.count_nonzero(both[1:] == both[:-1]))
    return shared / (len(both) - shared) if len(both) else 0.0


class NearDuplicateIndex:
    """Finds for each document, in reading order, a kept one that is nearly equal.

    Memory is about 2 kB a document; the n-grams (8 bytes a word) lie in a temporary file.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._by_band: dict[int, list[int]] = {}
        self._ends = [0]
        self._file = tempfile.TemporaryFile(prefix="bertline-ngrams-")  # noqa: SIM115

    def __enter__(self) -> NearDuplicateIndex:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def partner_or_keep(self, signature: Signature) -> Partner | None:
        """Return the most similar kept document at or above the threshold; without one, keep this document.

        At most `MAX_COMPARED` candidates are compared, however many documents resemble this one.
        """
        shared = Counter(chain.from_iterable(self._by_band.get(band, ()) for band in signature.bands))
        candidates = list(shared)
        if len(candidates) > MAX_COMPARED:
            candidates = sorted(candidates, key=lambda index: (-shared[index], index))[:MAX_COMPARED]
        best: Partner | None = None
        for index in sorted(candidates):
            similarity_of_pair = self._similarity(signature.ngrams, index)
            if similarity_of_pair >= self._threshold and (best is None or similarity_of_pair > best.similarity):
                best = Partner(index, similarity_of_pair)
        if best is None:
            self._keep(signature)
        return best

    def _similarity(self, ngrams: Hashes, index: int) -> float:
        start, end = self._ends[index], self._ends[index + 1]
        short, long = sorted((len(ngrams), end - start))
        if short < self._threshold * long:
            return 0.0  # even if the shorter one were a part of the longer one
        stored = os.pread(self._file.fileno(), (end - start) * _ITEM_BYTES, start * _ITEM_BYTES)
        return similarity(ngrams, np.frombuffer(stored, np.uint64))

    def _keep(self, signature: Signature) -> None:
        index = len(self._ends) - 1
        for band in signature.bands:
            if len(of_band := self._by_band.setdefault(band, [])) < MAX_OF_BAND:
                of_band.append(index)
        self._file.write(signature.ngrams.tobytes())
        self._file.flush()
        self._ends.append(self._ends[-1] + len(signature.ngrams))


Prepare = Callable[[list[SourceDocument]], list[PreparedDocument]]
"""Prepares a batch; it is pickled for the worker processes."""


@dataclass(frozen=True, slots=True)
class PrepareWithQuality:
    """Prepares a batch and adds what the rules need; a pure function that can be sent to workers."""

    prepare: Prepare
    ngram: int | None
    """Words of the n-grams by which near duplicates are found; None looks for none."""
    needles: str | None
    """File of `write_needles`; None looks for nothing."""

    def __call__(self, batch: list[SourceDocument]) -> list[PreparedDocument]:
        documents = self.prepare(batch)
        if self.needles is not None:
            wanted = read_needles(self.needles)
            documents = [
                dataclasses.replace(
                    document,
                    contaminated=tuple(wanted.found_in([paragraph.sentences for paragraph in document.paragraphs])),
                )
                for document in documents
            ]
        if self.ngram is not None:
            document_signatures = signatures((document.sentences for document in documents), self.ngram)
            documents = [
                dataclasses.replace(document, signature=signature)
                for document, signature in zip(documents, document_signatures, strict=True)
            ]
        return documents


def without_contaminated(
    documents: Iterable[PreparedDocument], dropped: Counter[str], samples: DropSamples
) -> Iterator[PreparedDocument]:
    """Remove the paragraphs with text of `corpus.decontaminate`; a document without any other is dropped."""
    for document in documents:
        if document.contaminated:
            contaminated = set(document.contaminated)
            for index in document.contaminated:
                samples.add("paragraphs/contaminated", document.id, " ".join(document.paragraphs[index].sentences))
            dropped["paragraphs/contaminated"] += len(contaminated)
            clean_paragraphs = tuple(
                paragraph for index, paragraph in enumerate(document.paragraphs) if index not in contaminated
            )
            if not clean_paragraphs:
                dropped["documents/contaminated"] += 1
                samples.add("documents/contaminated", document.id, " ".join(document.sentences))
                continue
            document = dataclasses.replace(document, paragraphs=clean_paragraphs)
        yield document


def without_near_duplicates(
    documents: Iterable[PreparedDocument], threshold: float, dropped: Counter[str], samples: DropSamples
) -> Iterator[PreparedDocument]:
    """Drop each document that is nearly equal to one kept before; documents are compared as they were read."""
    ids: list[str] = []
    with NearDuplicateIndex(threshold) as index:
        for document in documents:
            assert document.signature is not None
            partner = index.partner_or_keep(document.signature)
            if partner is None:
                ids.append(document.id)
                yield document
            else:
                dropped["documents/near_duplicate"] += 1
                note = f"{partner.similarity:.0%} equal to {ids[partner.index]}"
                samples.add("documents/near_duplicate", document.id, " ".join(document.sentences), note)
