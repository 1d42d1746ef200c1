"""Corpus shards: Parquet files with the columns id, group and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.corpus.document import Document, Split
from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import read_manifest

KIND = "corpus"
FORMAT_VERSION = 1
SCHEMA = pa.schema([("id", pa.string()), ("group", pa.string()), ("sentences", pa.list_(pa.string()))])
# Limits of a row group, the unit held in memory while writing and reading.
_ROW_GROUP_CHARACTERS = 8_000_000
_ROW_GROUP_DOCUMENTS = 20_000


def read_documents(folder: Path, split: Split) -> Iterator[Document]:
    """Read the documents of one split in the order they were written, one row group at a time.

    Raises:
        ArtifactError: The folder is not a corpus, or a shard is missing or damaged.
    """
    for path in shard_paths(folder, split):
        yield from read_shard(path)


def shard_paths(folder: Path, split: Split) -> list[Path]:
    """Return the files of one split, in the order they were written. A document and its copies are in one file.

    Raises:
        ArtifactError: The folder is not a corpus.
    """
    manifest = read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION)
    return [folder / name for name in manifest["shards"][split]]


def num_documents(folder: Path, split: Split) -> int:
    """Return the number of documents of one split, from the shards' own counts.

    Raises:
        ArtifactError: The folder is not a corpus, or a shard is missing or damaged.
    """
    try:
        return sum(pq.read_metadata(path).num_rows for path in shard_paths(folder, split))
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{folder} cannot be read ({error}). Run the corpus stage again.") from error


def read_shard(path: Path, is_wanted: Callable[[str], bool] | None = None) -> Iterator[Document]:
    """Read the documents of one shard, or those with a wanted id.

    Raises:
        ArtifactError: The shard is missing or damaged.
    """
    try:
        with pq.ParquetFile(path) as shard:
            for index in range(shard.num_row_groups):
                table = shard.read_row_group(index)
                if is_wanted is not None:
                    table = table.filter(pa.array(map(is_wanted, table["id"].to_pylist()), pa.bool_()))
                columns = table.to_pydict()
                for key, group, sentences in zip(*(columns[name] for name in SCHEMA.names), strict=True):
                    yield Document(key, group, tuple(sentences))
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path} cannot be read ({error}). Run the corpus stage again.") from error


def has_sources(folder: Path) -> bool:
    """Return whether the corpus is one of several sources, with ids that begin with labels (`corpus/document.py`).

    Raises:
        ArtifactError: The folder is not a corpus.
    """
    return bool(read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION).get("source") == "sources")


class ShardWriter:
    """Writes the documents of one split into shards of `shard_documents`; `close` gives shards their final names."""

    def __init__(self, folder: Path, split: Split, shard_documents: int) -> None:
        self._folder = folder
        self._split = split
        self._shard_documents = shard_documents
        self._paths: list[Path] = []
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[Document] = []
        self._characters = 0
        self._in_shard = 0

    def write(self, document: Document) -> None:
        """Add a document."""
        self._rows.append(document)
        self._characters += sum(map(len, document.sentences))
        self._in_shard += 1
        if self._characters >= _ROW_GROUP_CHARACTERS or len(self._rows) >= _ROW_GROUP_DOCUMENTS:
            self._flush()
        if self._in_shard >= self._shard_documents:
            self._close_shard()

    def close(self) -> list[str]:
        """Finish the last shard and rename all shards to `SPLIT-00000-of-00003.parquet` etc.

        Returns:
            The file names in order; empty if nothing was written.
        """
        self._close_shard()
        names = [f"{self._split}-{index:05d}-of-{len(self._paths):05d}.parquet" for index in range(len(self._paths))]
        for path, name in zip(self._paths, names, strict=True):
            path.rename(self._folder / name)
        return names

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            path = self._folder / f".{self._split}-{len(self._paths):05d}.parquet"
            self._paths.append(path)
            self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        columns = [
            [row.id for row in self._rows],
            [row.group for row in self._rows],
            [list(row.sentences) for row in self._rows],
        ]
        self._writer.write_table(pa.table(columns, schema=SCHEMA))
        self._rows, self._characters = [], 0

    def _close_shard(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
        self._writer, self._in_shard = None, 0
