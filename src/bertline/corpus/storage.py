"""Corpus shards: Parquet files with the columns id, group and sentences; and files between the steps of the stage.

What reads raises ArtifactError where a folder is no corpus, or a shard is missing or damaged.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bertline.corpus.document import Document, Split
from bertline.foundation.engine import Counts, Engine, Task, shard_folder
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import writing
from bertline.foundation.manifests import read_manifest

Uint64 = npt.NDArray[np.uint64]

KIND = "corpus"
FORMAT_VERSION = 1
SCHEMA = pa.schema([("id", pa.string()), ("group", pa.string()), ("sentences", pa.list_(pa.string()))])
# Limits of a row group, the unit held in memory while writing and reading.
_ROW_GROUP_CHARACTERS = 8_000_000
_ROW_GROUP_DOCUMENTS = 20_000


def read_documents(folder: Path, split: Split) -> Iterator[Document]:
    """Read the documents of one split in the order they were written, one row group at a time."""
    for path in shard_paths(folder, split):
        yield from read_shard(path)


def shard_paths(folder: Path, split: Split) -> list[Path]:
    """Return the files of one split, in the order they were written. A document and its copies are in one file."""
    manifest = read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION)
    return [folder / name for name in manifest["shards"][split]]


def counts_of(folder: Path, split: Split) -> Counter[str]:
    """Return the `documents` and `characters` of one split, copies included."""
    return Counter(read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION)["counts"][split])


def read_shard(path: Path) -> Iterator[Document]:
    """Read the documents of one shard."""
    try:
        with pq.ParquetFile(path) as shard:
            for index in range(shard.num_row_groups):
                columns = shard.read_row_group(index).to_pydict()
                for key, group, sentences in zip(*(columns[name] for name in SCHEMA.names), strict=True):
                    yield Document(key, group, tuple(sentences))
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path} cannot be read ({error}). Run the corpus stage again.") from error


def has_sources(folder: Path) -> bool:
    """Return whether the corpus is one of several sources, with ids that begin with labels (`corpus/document.py`)."""
    return bool(read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION).get("source") == "sources")


class ShardWriter:
    """Writes the documents of one shard, a row group at a time; without documents there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[Document] = []
        self._characters = 0

    def write(self, document: Document) -> None:
        """Add a document."""
        self._rows.append(document)
        self._characters += sum(map(len, document.sentences))
        if self._characters >= _ROW_GROUP_CHARACTERS or len(self._rows) >= _ROW_GROUP_DOCUMENTS:
            self._flush()

    def close(self) -> None:
        """Write what is left."""
        if self._rows:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        with writing(self._path):
            self._writer = self._writer or pq.ParquetWriter(self._path, SCHEMA, compression="zstd")
            self._writer.write_table(pa.table(_columns(self._rows, SCHEMA), schema=SCHEMA))
        self._rows, self._characters = [], 0


def _columns(rows: Sequence[Any], schema: pa.Schema) -> list[pa.Array]:
    return [pa.array([getattr(row, field.name) for row in rows], field.type) for field in schema]


# What the steps of the stage leave for each other: folders of shards, documents as Arrow files,
# sorted arrays.


class Made(NamedTuple):
    """What a step made of its shards."""

    counts: list[Counts]
    folders: list[Path]


@dataclass(frozen=True, slots=True)
class Steps:
    """Runs the steps of the stage, each in a folder of its own."""

    engine: Engine
    folder: Path

    def run(self, name: str, task: Task[Any], shards: Sequence[Any]) -> Made:
        """Apply a task to shards; the folder of each is below that of the step's name."""
        out = self.folder / name
        counts = self.engine.map(task, shards, out, description=f"corpus, {name.replace('_', ' ')}")
        return Made(counts, [shard_folder(out, number) for number in range(len(shards))])


def rows_between(paths: Iterable[Path], first: int, last: int) -> list[Uint64]:
    """Return of each array, [rows, entries] sorted by its first row, the entries from `first` to `last` (inclusive)."""
    found = []
    for path in paths:
        rows = np.load(path, mmap_mode="r")
        start = np.searchsorted(rows[0], np.uint64(first))
        found.append(np.asarray(rows[:, start : np.searchsorted(rows[0], np.uint64(last), side="right")]))
    return found


def partition(number: int, num_partitions: int) -> tuple[int, int]:
    """Return the first and the last of the 64-bit numbers of a partition."""
    size = (1 << 64) // num_partitions
    return number * size, (1 << 64) - 1 if number + 1 == num_partitions else (number + 1) * size - 1


def num_partitions(num_shards: int) -> int:
    """Return how many partitions keys of shards are divided into: one of them is as large as some shards."""
    return -(-num_shards // 16)


def write_batches(path: Path, rows: Iterable[list[Any]], schema: pa.Schema) -> int:
    """Write batches of rows, whose attributes are the columns of the schema; return the number of batches."""
    number = 0
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with writing(path):
        sink = pa.OSFile(str(path), "wb")
    with sink, pa.ipc.new_file(sink, schema, options=options) as file:
        for batch in rows:
            number += 1
            with writing(path):
                file.write_batch(pa.record_batch(_columns(batch, schema), schema=schema))
    return number


def read_batches(path: Path, wanted: Iterable[int] | None = None) -> Iterator[dict[str, list[Any]]]:
    """Read batches that `write_batches` wrote, or those of some numbers, as columns."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        for number in range(file.num_record_batches) if wanted is None else wanted:
            yield file.get_batch(number).to_pydict()
