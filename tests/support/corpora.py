"""Corpora that are spelt out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertline.corpus import storage
from bertline.corpus.build import build_corpus
from bertline.corpus.document import Document, Split
from bertline.corpus.quality.drops import DROPS_NAME
from bertline.foundation.files import read_json
from engines import local
from no_packages import NO_PACKAGES


class ShardWriter:
    """Writes documents of one split, so many to a file."""

    def __init__(self, folder: Path, split: Split, shard_documents: int) -> None:
        self._folder, self._split, self._size = folder, split, shard_documents
        self._documents: list[Document] = []

    def write(self, document: Document) -> None:
        """Add a document."""
        self._documents.append(document)

    def close(self) -> list[str]:
        """Write the files and return their names."""
        starts = range(0, len(self._documents), self._size)
        names = [f"{self._split}-{number:05d}-of-{len(starts):05d}.parquet" for number in range(len(starts))]
        for name, start in zip(names, starts, strict=True):
            writer = storage.ShardWriter(self._folder / name)
            for document in self._documents[start : start + self._size]:
                writer.write(document)
            writer.close()
        return names


def build(config: Any, out: Path, num_workers: int = 0) -> dict[str, Any]:
    """Build a corpus that needs no packages; return the headline."""
    return build_corpus(config, NO_PACKAGES, out, **local(out, num_workers))


def drops_of(out: Path) -> dict[str, Any]:
    """Return counts and samples of what was left out of a corpus."""
    return dict(read_json(out / DROPS_NAME))
