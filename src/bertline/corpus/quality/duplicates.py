"""Duplicates across shards: exact ones by their keys, near ones by MinHash; the first in reading order stays.

A document is named by its shard and its number there, in one integer. Keys and hashes lie on disk, sorted, and a
process holds those of one partition of all keys.

Two documents are compared if they share a band of their MinHash signatures. Of a band that many documents share, such
as that of a template, each is compared with the first ones; documents that are nearly equal share other bands too.

References:
    Broder, "On the resemblance and containment of documents", 1997, section 2 (shingles and MinHash).
    Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4 (bands of signatures).
"""

import os
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rensa import RMinHash

from bertline.corpus.quality.word_hashes import Hashes, combined, hashes_of_documents, ngram_hashes
from bertline.corpus.storage import Made, Steps, Uint64, num_partitions, partition, rows_between
from bertline.foundation.engine import Counts

# Bits of a document's number in its shard, and of a paragraph's in its document.
_PLACE = 32
_NUMBER = (1 << _PLACE) - 1
_KEYS, _LOSERS = "keys.npy", "losers.npy"


def places_of(shard: int) -> tuple[int, int]:
    """Return the first and the last possible name of a document of a shard."""
    return shard << _PLACE, ((shard + 1) << _PLACE) - 1


def write_keys(folder: Path, keys: Sequence[Sequence[bytes]]) -> None:
    """Write the 12-byte keys of a shard's documents, or of their paragraphs, sorted: [3, keys] high, low, place."""
    parts = np.frombuffer(b"".join(chain.from_iterable(keys)), dtype=[("high", ">u8"), ("low", ">u4")])
    places = [(document << _PLACE) + place for document, each in enumerate(keys) for place in range(len(each))]
    rows = np.stack([parts["high"], parts["low"], np.array(places, np.uint64)]).astype(np.uint64)
    np.save(folder / _KEYS, rows[:, np.lexsort((rows[1], rows[0]))])


def find_duplicates(steps: Steps, prepared: Made) -> list[Path]:
    """Find documents or paragraphs that occurred before; return files of [3, losers] shard, document, paragraph."""
    number = num_partitions(len(prepared.folders))
    task = partial(_losers, keys=[folder / _KEYS for folder in prepared.folders], number=number)
    return [folder / _LOSERS for folder in steps.run("duplicates", task, range(number)).folders]


def _losers(index: int, out: Path, *, keys: Sequence[Path], number: int) -> Counts:
    """Write all of a partition's keys but the first of equal ones; the task of a partition."""
    parts = rows_between(keys, *partition(index, number))
    shards = np.repeat(np.arange(len(parts), dtype=np.uint64), [part.shape[1] for part in parts])
    high, low, place = np.concatenate(parts, axis=1)
    order = np.lexsort((low, high))  # stable: the first in reading order comes first
    high, low = high[order], low[order]
    again = order[1:][(high[1:] == high[:-1]) & (low[1:] == low[:-1])]
    again = again[np.lexsort((place[again], shards[again]))]
    paragraphs = place[again] & np.uint64(_NUMBER)
    np.save(out / _LOSERS, np.stack([shards[again], place[again] >> np.uint64(_PLACE), paragraphs]))
    return {}


def losers_of(files: Iterable[Path], shard: int) -> dict[int, set[int]]:
    """Return the paragraphs that are duplicates, by the number of the document in a shard."""
    found: dict[int, set[int]] = {}
    for rows in rows_between(files, shard, shard):
        for document, paragraph in rows[1:].T.tolist():
            found.setdefault(document, set()).add(paragraph)
    return found


# One thread: workers are the parallelism, and threads of rensa that wait for a busy core only burn
# time.
os.environ.setdefault("RAYON_NUM_THREADS", "1")

# Two documents are candidates with probability 1 - (1 - J**rows)**bands: 0.97 at J = 0.7, 0.999 at
# 0.8.
NUM_BANDS = 20
ROWS = 5
_SEED = 42
MAX_OF_BAND = 16
"""Documents of one band that the later ones are compared with: the first ones."""
_BANDS, _NGRAMS, _ENDS, _PAIRS, _SIMILAR = "bands.npy", "ngrams.bin", "ends.npy", "pairs.npy", "similar.npy"


def _bands_of(ngrams: Sequence[Hashes]) -> list[list[int]]:
    """Return a key for each band of each document; documents that share one are candidates."""
    ends = np.cumsum([0, *map(len, ngrams)], dtype=np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(np.concatenate(ngrams), ends, NUM_BANDS * ROWS, _SEED)
    rows = np.asarray(matrix.to_rows(), np.uint64).reshape(len(ngrams), NUM_BANDS, ROWS)
    band = np.broadcast_to(np.arange(NUM_BANDS, dtype=np.uint64), rows.shape[:2])
    keys: list[list[int]] = combined([band, *np.moveaxis(rows, 2, 0)]).tolist()
    return keys


def write_signatures(
    folder: Path, batches: Iterable[Sequence[tuple[int, Sequence[str]]]], *, ngram: int, shard: int
) -> None:
    """Write what a shard's documents are compared by, each with its number in the shard.

    `bands.npy` is [2, bands] keys and documents, sorted by key; `ngrams.bin` has the hashes of the distinct n-grams,
    sorted, one document after the other, and `ends.npy` is [2, documents] numbers of documents and where theirs end.
    Documents of fewer words than an n-gram has are near duplicates of nothing.
    """
    bands, places, numbers, ends = array("Q"), array("Q"), array("Q"), array("Q", [0])
    with (folder / _NGRAMS).open("wb") as file:
        for batch in batches:
            words = hashes_of_documents(text for _, text in batch)
            ngrams = [np.unique(ngram_hashes(each, ngram)) for each in words]
            long = {number: each for (number, _), each in zip(batch, ngrams, strict=True) if len(each)}
            for number, keys in zip(long, _bands_of([*long.values()]) if long else (), strict=True):
                bands.extend(keys)
                places.extend([places_of(shard)[0] + number] * len(keys))
                long[number].tofile(file)
                numbers.append(number)
                ends.append(ends[-1] + len(long[number]))
    rows = np.array([bands, places], dtype=np.uint64)
    np.save(folder / _BANDS, rows[:, np.argsort(rows[0], kind="stable")])
    np.save(folder / _ENDS, np.array([numbers, ends[1:]], dtype=np.uint64))


def find_near_duplicates(steps: Steps, signed: Made, threshold: float) -> Path:
    """Find documents that are nearly equal to an earlier one that stays, of shards with signatures.

    Returns:
        A file of [3, documents] the document, the other one, and the similarity; see `near_duplicates_of`.
    """
    bands = [folder / _BANDS for folder in signed.folders]
    number = num_partitions(NUM_BANDS * len(bands))
    pairs = steps.run("pairs", partial(_pairs, bands=bands, number=number), range(number))
    compare = partial(
        _compared, pairs=[folder / _PAIRS for folder in pairs.folders], signed=signed.folders, threshold=threshold
    )
    similar = steps.run("near_duplicates", compare, range(len(bands)))
    (folder,) = steps.run("first_ones", _first_ones, [tuple(folder / _SIMILAR for folder in similar.folders)]).folders
    return folder / _LOSERS


def _pairs(index: int, out: Path, *, bands: Sequence[Path], number: int) -> Counts:
    """Write [2, pairs] each document and an earlier one of its band, sorted; the task of a partition of bands."""
    rows = np.concatenate(rows_between(bands, *partition(index, number)), axis=1)
    keys, documents = rows[:, np.argsort(rows[0], kind="stable")]
    rank = _rank(keys)
    earlier = np.minimum(rank, MAX_OF_BAND)
    first = np.repeat(np.arange(len(keys)) - rank, earlier)
    nth = np.arange(len(first)) - np.repeat(np.cumsum(earlier) - earlier, earlier)
    pairs = np.stack([np.repeat(documents, earlier), documents[first + nth]])
    np.save(out / _PAIRS, pairs[:, np.lexsort((pairs[1], pairs[0]))])
    return {}


def _rank(keys: Uint64) -> npt.NDArray[np.int64]:
    """Return how many equal keys stand before each one of a sorted array."""
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
    return np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))


def _compared(shard: int, out: Path, *, pairs: Sequence[Path], signed: Sequence[Path], threshold: float) -> Counts:
    """Write the pairs that are similar enough, with the similarity; the task of the shard of the later documents."""
    chosen = np.unique(np.concatenate(rows_between(pairs, *places_of(shard)), axis=1), axis=1)
    rows = []
    by_shard = np.argsort(chosen[1], kind="stable")
    of_shard = lru_cache(maxsize=2)(lambda number: _ngrams_in(signed[number]))
    for later, earlier in chosen[:, by_shard].T.tolist():
        a, b = of_shard(shard)[later & _NUMBER], of_shard(earlier >> _PLACE)[earlier & _NUMBER]
        # Else they differ too much even if the shorter one was a part of the other.
        if min(len(a), len(b)) >= threshold * max(len(a), len(b)) and (equal := similarity(a, b)) >= threshold:
            rows.append((later, earlier, int(np.float64(equal).view(np.uint64))))
    np.save(out / _SIMILAR, np.array(sorted(rows), dtype=np.uint64).reshape(-1, 3).T)
    return {"compared": chosen.shape[1]}


def _ngrams_in(folder: Path) -> dict[int, Hashes]:
    """Return the n-grams of the documents of a shard, by their numbers."""
    numbers, ends = np.load(folder / _ENDS)
    return dict(zip(numbers.tolist(), np.split(np.memmap(folder / _NGRAMS, np.uint64, "r"), ends[:-1]), strict=True))


def similarity(a: Hashes, b: Hashes) -> float:
    """Return the Jaccard similarity of two sorted arrays of distinct hashes.

    >>> similarity(np.array([1, 2, 3], np.uint64), np.array([2, 3, 4], np.uint64))
    0.5
    """
    both = np.concatenate([a, b])
    both.sort()
    shared = int(np.count_nonzero(both[1:] == both[:-1]))
    return shared / (len(both) - shared) if len(both) else 0.0


def _first_ones(files: tuple[Path, ...], out: Path) -> Counts:
    """Write which documents are left out, each with the most similar earlier one that stays: a pass over all pairs."""
    rows = np.concatenate([np.load(file) for file in files], axis=1)
    later, earlier = rows[0], rows[1]
    names = np.unique(rows[:2])
    left_out = np.zeros(len(names), dtype=bool)
    losers = []
    # The most similar one first, of equal ones the first.
    order = np.lexsort((earlier, -rows[2].view(np.float64), later))
    places = np.searchsorted(names, rows[:2])
    for pair in order.tolist():
        if not left_out[places[0, pair]] and not left_out[places[1, pair]]:
            left_out[places[0, pair]] = True
            losers.append(pair)
    np.save(out / _LOSERS, rows[:, losers])
    return {}


def near_duplicates_of(file: Path, shard: int) -> dict[int, tuple[int, int, float]]:
    """Return, by the number of the left-out document in a shard, shard and number of the other one, and similarity."""
    (rows,) = rows_between([file], *places_of(shard))
    return {
        later & _NUMBER: (earlier >> _PLACE, earlier & _NUMBER, similar)
        for later, earlier, similar in zip(*rows[:2].tolist(), rows[2].view(np.float64).tolist(), strict=True)
    }
