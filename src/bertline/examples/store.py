"""Examples on disk: shards of memory-mapped arrays, safe to share with workers.

Layout of `length-0064/train/`: for each shard, `00000.input_ids.npy` has all its sequences concatenated, and
`00000.examples.npy` one row per example with the columns start, length, first_segment_length, next_sentence_label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertline.corpus.document import Split
from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import read_manifest
from bertline.tokenization.tokenizer import Layout, Tokenizer
from bertline.tokenization.vocabulary import CLS, PAD, SEP, SPECIAL_TOKENS

KIND = "examples"
FORMAT_VERSION = 1
_BATCH_TOKENS = 1 << 22

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Example:
    """One sequence, `[CLS] A [SEP] B [SEP]` or, with one segment, `[CLS] A [SEP]`, without padding.

    Special tokens are named as BERT spells them; each tokenizer has its own `Layout` of them.
    """

    input_ids: Array
    """[length] token ids."""
    token_type_ids: Array
    """[length], 0 for `[CLS] A [SEP]`, 1 for `B [SEP]`, or 0 everywhere if the tokenizer has one type."""
    next_sentence_label: int
    """1 if B is a random segment of another document (the reference code's convention) or precedes A, where pairs are
    swapped; 0 if it follows A or there is no B."""
    first_segment_length: int
    """Number of tokens of `[CLS] A [SEP]`."""


@dataclass(frozen=True, slots=True)
class ExampleBlock:
    """N concatenated examples."""

    input_ids: Array
    """[sum of lengths] token ids."""
    lengths: Array
    """[N] number of tokens of each example, including special tokens."""
    first_segment_lengths: Array
    """[N] number of tokens of `[CLS] A [SEP]`."""
    next_sentence_labels: Array
    """[N]."""


@dataclass(frozen=True, slots=True)
class PaddedExamples:
    """B examples as rows of S = max_length tokens, with padding at the end."""

    input_ids: Array
    """[B, S] int64."""
    lengths: Array
    """[B] int64, without padding."""
    first_segment_lengths: Array
    """[B] int64."""
    next_sentence_labels: Array
    """[B] int64."""


class ExampleStore:
    """The examples of one split and one length. Index i is the example's id, the same in every run."""

    def __init__(self, folder: Path, split: Split, length: int, manifest: dict[str, Any]) -> None:
        self.manifest = manifest
        """The manifest of the whole examples artifact."""
        self.max_length = length
        self._arguments = (folder, split, length)
        self._folder = split_folder(folder, split, length)
        counts = manifest["lengths"][str(length)][split]
        self._num_examples: int = counts["examples"]
        self.num_tokens: int = counts["tokens"]
        self._shard_sequences: int = manifest["shard_sequences"]
        self.pad_id: int = manifest["special_ids"][PAD]
        self.layout = layout_of(manifest)
        # All are mapped here (0.2 ms a shard), not at first use: `np.load` parses its header with `ast`, which CPython
        # 3.11 does not guard against other threads, and batches are read in a thread while the main one may compile.
        numbers = range(-(-len(self) // self._shard_sequences))
        self._shards = [_mapped(self._folder, number) for number in numbers]

    @classmethod
    def open(cls, folder: Path, split: Split, length: int) -> ExampleStore:
        """Map every shard into memory, which reads no example yet.

        Raises:
            ArtifactError: The folder is not an examples artifact, has no examples of this length, or a shard cannot be
                read.
        """
        manifest = read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION)
        if str(length) not in manifest["lengths"]:
            raise ArtifactError(
                f"{folder} has examples of {', '.join(manifest['lengths'])} tokens, none of {length}. "
                f"Add {length} to examples.lengths and run the stage examples again."
            )
        return cls(folder, split, length, manifest)

    def shards(self) -> list[tuple[Array, Array]]:
        """Return, for each shard, its concatenated token ids and [examples, 4] its rows: start, length and two more."""
        return list(self._shards)

    @property
    def num_segments(self) -> int:
        """Number of segments of a sequence."""
        return num_segments(self.manifest)

    def __reduce__(self) -> tuple[Any, ...]:
        # A memory map would be pickled as a copy of the file; instead, a spawned worker opens the store itself.
        return ExampleStore.open, self._arguments

    def __len__(self) -> int:
        return self._num_examples

    def __getitem__(self, index: int) -> Example:
        if not -len(self) <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        number, row = divmod(index % len(self), self._shard_sequences)
        ids, rows = self._shards[number]
        start, length, first, label = (int(value) for value in rows[row])
        token_type_ids = (np.arange(length) >= first).astype(np.int64) * self.layout.second_type
        return Example(ids[start : start + length].astype(np.int64), token_type_ids, label, first)

    def padded(self, indices: npt.ArrayLike) -> PaddedExamples:
        """Return the examples at `indices` ([B], each from 0 to len - 1), padded to `max_length`."""
        wanted = np.asarray(indices, dtype=np.int64)
        numbers, rows_in_shard = np.divmod(wanted, self._shard_sequences)
        input_ids = np.empty((len(wanted), self.max_length), dtype=np.int64)
        facts = np.empty((len(wanted), 4), dtype=np.int64)
        columns = np.arange(self.max_length)
        for number in np.unique(numbers):
            chosen = numbers == number
            ids, rows = self._shards[number]
            facts[chosen] = rows[rows_in_shard[chosen]]
            # Columns after the end of an example read the next example here and become padding below.
            source = np.minimum(facts[chosen, :1] + columns, len(ids) - 1)
            input_ids[chosen] = ids[source]
        _, lengths, first_segment_lengths, labels = facts.T
        input_ids[columns >= lengths[:, None]] = self.pad_id
        return PaddedExamples(input_ids, lengths, first_segment_lengths, labels)

    def id_shards(self) -> Iterable[Array]:
        """Yield the token ids of all examples, including special tokens, one shard at a time."""
        for ids, _ in self.shards():
            yield ids


def _mapped(folder: Path, number: int) -> tuple[Array, Array]:
    """Return the token ids and the rows of a shard as views of its files."""
    paths = [folder / f"{number:05d}.{name}.npy" for name in ("input_ids", "examples")]
    try:
        # Plain ndarray views: indexing an np.memmap is several times slower.
        ids, rows = (np.asarray(np.load(path, mmap_mode="r")) for path in paths)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{paths[0]} cannot be read ({error}). Run the stage examples again.") from error
    return ids, rows


class ExampleWriter:
    """Writes blocks of examples into shards of `shard_sequences` examples each."""

    def __init__(self, folder: Path, shard_sequences: int) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._shard_sequences = shard_sequences
        self._num_shards = 0
        self._waiting: list[ExampleBlock] = []
        self._num_waiting = 0

    def write(self, block: ExampleBlock) -> None:
        """Add the examples of a block, in order."""
        self._waiting.append(block)
        self._num_waiting += len(block.lengths)
        while self._num_waiting >= self._shard_sequences:
            self._write_shard(self._shard_sequences)

    def close(self) -> None:
        """Write the remaining examples as the last shard."""
        if self._num_waiting:
            self._write_shard(self._num_waiting)

    def _write_shard(self, num_examples: int) -> None:
        joined = ExampleBlock(
            *(np.concatenate([getattr(block, name) for block in self._waiting]) for name in ExampleBlock.__slots__)
        )
        ends = np.cumsum(joined.lengths, dtype=np.int64)
        num_tokens = int(ends[num_examples - 1])
        columns = (ends - joined.lengths, joined.lengths, joined.first_segment_lengths, joined.next_sentence_labels)
        rows = np.stack([column[:num_examples] for column in columns], axis=1).astype(np.uint32)
        np.save(self._folder / f"{self._num_shards:05d}.input_ids.npy", joined.input_ids[:num_tokens])
        np.save(self._folder / f"{self._num_shards:05d}.examples.npy", rows)
        self._num_shards += 1
        self._num_waiting -= num_examples
        rest = (joined.lengths, joined.first_segment_lengths, joined.next_sentence_labels)
        self._waiting = [ExampleBlock(joined.input_ids[num_tokens:], *(column[num_examples:] for column in rest))]


def num_segments(manifest: Mapping[str, Any]) -> int:
    """Return the number of segments per sequence of an examples artifact: 2 for pairs, else 1."""
    return 1 if manifest["random_next_prob"] is None else 2


def special_ids_of(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the special ids of a manifest: of each role under the name that BERT gives it, then any others."""
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    others = tokenizer.special_ids.difference(ids)
    return {**dict(zip(SPECIAL_TOKENS, ids, strict=True)), **{tokenizer.vocab[index]: index for index in others}}


def layout_of(manifest: Mapping[str, Any]) -> Layout:
    """Return the special tokens of a sequence of an examples artifact: BERT's, unless the manifest has a `layout`."""
    if "layout" in manifest:
        before, between, after = (tuple(manifest["layout"][name]) for name in ("before", "between", "after"))
        return Layout(before, between, after, manifest["layout"]["second_type"])
    ids, is_pair = manifest["special_ids"], num_segments(manifest) == 2
    return Layout((ids[CLS],), (ids[SEP],) * is_pair, (ids[SEP],), int(is_pair))


def split_folder(folder: Path, split: Split, length: int) -> Path:
    """Return the folder of the shards of one split and length."""
    return folder / f"length-{length:04d}" / split


def token_id_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the smallest unsigned dtype that holds every token id.

    Example:
        >>> token_id_dtype(30522), token_id_dtype(119547)
        (dtype('uint16'), dtype('uint32'))
    """
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def token_counts(store: ExampleStore, vocab_size: int) -> Array:
    """Return [vocab_size] the count of each token in the examples, including special tokens."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for ids in store.id_shards():
        for start in range(0, len(ids), _BATCH_TOKENS):  # in batches, as bincount makes a copy four times as large
            counts += np.bincount(ids[start : start + _BATCH_TOKENS], minlength=vocab_size)
    return counts
