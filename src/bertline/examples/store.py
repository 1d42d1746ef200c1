"""Examples on disk: shards of memory-mapped arrays, safe to share with workers.

Layout of `length-0064/train/`: for each shard, `00000.input_ids.npy` has all its sequences concatenated, and
`00000.examples.npy` one row per example with the columns start, length, first_segment_length, next_sentence_label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertline.corpus.document import Split
from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import read_manifest, write_manifest
from bertline.tokenization.tokenizer import Layout, Tokenizer
from bertline.tokenization.vocabulary import CLS, PAD, SEP, SPECIAL_TOKENS

if TYPE_CHECKING:
    import datasets

_KIND = "examples"
_FORMAT_VERSION = 1
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
    """N concatenated examples, or padded ones."""

    input_ids: Array
    """[sum of lengths] token ids; or [N, S], with padding at the end."""
    lengths: Array
    """[N] number of tokens of each example, including special tokens, without padding."""
    first_segment_lengths: Array
    """[N] number of tokens of `[CLS] A [SEP]`."""
    next_sentence_labels: Array
    """[N]."""


class ExampleStore:
    """The examples of one split and one length. Index i is the example's id, the same in every run."""

    def __init__(self, shards: list[tuple[Array, Array]], length: int, manifest: Mapping[str, Any]) -> None:
        """Make a store of `shards`, all but the last one full; for files see `open`."""
        self.manifest = manifest
        """The manifest of the whole examples artifact."""
        self.max_length = length
        self.num_tokens = sum(len(ids) for ids, _ in shards)
        self._num_examples = sum(len(rows) for _, rows in shards)
        self._shard_sequences: int = manifest["shard_sequences"]
        self.pad_id: int = manifest["special_ids"][PAD]
        self.layout = layout_of(manifest)
        self.num_segments = num_segments(manifest)
        self.shards = shards
        """For each shard, its concatenated token ids and [examples, 4] its rows: start, length and two more."""
        self._opened: tuple[Path, Split, int] | None = None

    @classmethod
    def open(cls, folder: Path, split: Split, length: int, manifest: Mapping[str, Any] | None = None) -> ExampleStore:
        """Map every shard of an artifact into memory, which reads no example yet.

        A `manifest` is given if it is not in the folder yet.

        Raises:
            ArtifactError: The folder is not an examples artifact, has no examples of this length, or a shard cannot be
                read.
        """
        manifest = manifest or read_examples_manifest(folder)
        if str(length) not in manifest["lengths"]:
            raise ArtifactError(
                f"{folder} has examples of {', '.join(manifest['lengths'])} tokens, none of {length}. "
                f"Add {length} to examples.lengths and run the stage examples again."
            )
        # All are mapped here (0.2 ms a shard), not at first use: headers are parsed with `ast`, which CPython 3.11 does
        # not guard against other threads, and batches are read in a thread while the main one may compile.
        num_shards = -(-manifest["lengths"][str(length)][split]["examples"] // manifest["shard_sequences"])
        names, shards = map(shard_files, range(num_shards)), split_folder(folder, split, length)
        store = cls([(mapped(shards / ids), mapped(shards / rows)) for ids, rows in names], length, manifest)
        store._opened = folder, split, length
        return store

    def __reduce__(self) -> tuple[Any, ...]:
        # A memory map would be pickled as a copy of the file; instead, a spawned worker opens the store itself.
        assert self._opened is not None
        return ExampleStore.open, self._opened

    def __len__(self) -> int:
        return self._num_examples

    def __getitem__(self, index: int) -> Example:
        if not -len(self) <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        number, row = divmod(index % len(self), self._shard_sequences)
        ids, rows = self.shards[number]
        start, length, first, label = (int(value) for value in rows[row])
        token_type_ids = (np.arange(length) >= first).astype(np.int64) * self.layout.second_type
        return Example(ids[start : start + length].astype(np.int64), token_type_ids, label, first)

    def padded(self, indices: npt.ArrayLike) -> ExampleBlock:
        """Return the examples at `indices` ([B], each from 0 to len - 1), padded to `max_length`, as int64."""
        wanted = np.asarray(indices, dtype=np.int64)
        numbers, rows_in_shard = np.divmod(wanted, self._shard_sequences)
        input_ids = np.empty((len(wanted), self.max_length), dtype=np.int64)
        facts = np.empty((len(wanted), 4), dtype=np.int64)
        columns = np.arange(self.max_length)
        for number in np.unique(numbers):
            chosen = numbers == number
            ids, rows = self.shards[number]
            facts[chosen] = rows[rows_in_shard[chosen]]
            # Columns after the end of an example read the next example here and become padding below.
            source = np.minimum(facts[chosen, :1] + columns, len(ids) - 1)
            input_ids[chosen] = ids[source]
        _, lengths, first_segment_lengths, labels = facts.T
        input_ids[columns >= lengths[:, None]] = self.pad_id
        return ExampleBlock(input_ids, lengths, first_segment_lengths, labels)

    def to_dataset(self) -> datasets.Dataset:
        """Return the examples, without masks and padding, as a dataset whose token ids are not copied.

        Its columns are `input_ids`, `token_type_ids` and `next_sentence_label`.
        """
        import datasets
        import pyarrow as pa

        tables = []
        for ids, rows in self.shards:
            starts, lengths, first, labels = rows.astype(np.int64).T
            types = (np.arange(len(ids)) >= np.repeat(starts + first, lengths)).astype(np.uint8)
            columns = {"input_ids": ids, "token_type_ids": types * self.layout.second_type}
            ends = np.append(starts, len(ids))
            lists = {name: pa.LargeListArray.from_arrays(ends, pa.array(each)) for name, each in columns.items()}
            tables.append(pa.table({**lists, "next_sentence_label": labels}))
        return datasets.Dataset(pa.concat_tables(tables))


def read_examples_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of an examples artifact."""
    return read_manifest(folder, kind=_KIND, format_version=_FORMAT_VERSION)


def write_examples_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Write the manifest of an examples artifact."""
    write_manifest(folder, kind=_KIND, format_version=_FORMAT_VERSION, content=content)


def shard_files(number: int) -> tuple[str, str]:
    """Return the names of the files of a shard: token ids and rows."""
    return f"{number:05d}.input_ids.npy", f"{number:05d}.examples.npy"


def write_shard(folder: Path, number: int, block: ExampleBlock) -> tuple[Array, Array]:
    """Write examples as a shard, and return its token ids and rows."""
    starts = np.cumsum(block.lengths, dtype=np.int64) - block.lengths
    columns = (starts, block.lengths, block.first_segment_lengths, block.next_sentence_labels)
    rows = np.stack(columns, axis=1).astype(np.uint32)
    for name, content in zip(shard_files(number), (block.input_ids, rows), strict=True):
        np.save(folder / name, content)
    return block.input_ids, rows


def mapped(path: Path) -> Array:
    """Map a `.npy` file into memory. Arrow keeps no file descriptor open, of which a process may have few.

    Raises:
        ArtifactError: The file is missing or torn.
    """
    try:
        try:
            import pyarrow as pa
        except ImportError:  # a bare GPU image
            return np.load(path, mmap_mode="r", allow_pickle=False)
        with pa.memory_map(str(path)) as file:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            return np.frombuffer(file.read_buffer(), dtype).reshape(shape)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} cannot be read ({error}). Run the stage examples again.") from error


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

    >>> token_id_dtype(30522), token_id_dtype(119547)
    (dtype('uint16'), dtype('uint32'))
    """
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def token_counts(store: ExampleStore, vocab_size: int) -> Array:
    """Return [vocab_size] the count of each token in the examples, including special tokens."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for ids, _ in store.shards:
        for start in range(0, len(ids), _BATCH_TOKENS):  # in batches, as bincount makes a copy four times as large
            counts += np.bincount(ids[start : start + _BATCH_TOKENS], minlength=vocab_size)
    return counts
