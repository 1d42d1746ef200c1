"""Reading a corpus several times, its source once: what is read ahead is kept in a temporary file, up to a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bertline.corpus.document import SourceDocument
from bertline.corpus.input_files import ShownCounts, counts_of_source
from bertline.corpus.quality.drops import DropSamples

Batch = list[SourceDocument]
ReadPart = Callable[[str, Counter[str]], Iterable[Batch]]
"""Reads a part of the corpus from its beginning, and counts what it leaves out."""

_MOST_BYTES = 1 << 30
"""Largest size in bytes of all that is kept; a part that does not fit is read again from its source."""
_TEXT = pa.string()
_SCHEMA = pa.schema(
    [
        ("id", _TEXT),
        ("group", _TEXT),
        ("paragraphs", pa.list_(pa.large_string())),
        ("split", _TEXT),
        ("language", _TEXT),
    ]
)


class CachedReader:
    """The batches of a corpus, for those who learn from it first and for the corpus itself.

    All get the same batches. Unpacking, decoding and parsing take about half as long as splitting sentences, so they
    are done once where the text is not too large.
    """

    def __init__(
        self, read: ReadPart, parts: Sequence[str], folder: Path, source_of: Callable[[str], str] | None
    ) -> None:
        """Take what reads the corpus.

        Args:
            read: Reads a part.
            parts: Names of the sources, in their order; `[""]` for a corpus of one.
            folder: For what is kept.
            source_of: Returns the source of a document's id, in a corpus of several.
        """
        self.parts = parts
        self._read = read
        self._folder = folder
        self._source_of = source_of
        self._kept: dict[str, _Kept | None] = {}

    def ahead(self, *parts: str) -> Iterator[Batch]:
        """Read parts of the corpus, or all of it, to learn from it: nothing that is left out is counted."""
        for part in parts or self.parts:
            if part not in self._kept:
                yield from self._keep(part)
            elif (kept := self._kept[part]) is not None:
                yield from _batches(kept.path)
            else:
                yield from self._read(part, Counter())

    def counted(self, part: str, dropped: Counter[str], samples: DropSamples) -> Iterator[Batch]:
        """Read a part for the corpus, the last time: what is left out is counted, and shown if `dropped` shows it."""
        cached = self._kept.get(part)
        if cached is None:
            yield from self._read(part, dropped)
            return
        yield from _batches(cached.path)
        cached.path.unlink()
        del self._kept[part]
        dropped.update(cached.dropped)
        samples.take(cached.samples)

    def _keep(self, part: str) -> Iterator[Batch]:
        self._kept[part] = None  # until all of it is kept
        samples = DropSamples()
        samples.source_of = self._source_of
        shown = ShownCounts(samples.keep)
        dropped = counts_of_source(shown, part) if part else shown
        path = self._folder / f"read-{self.parts.index(part)}.arrow"
        most = _MOST_BYTES - sum(kept.path.stat().st_size for kept in self._kept.values() if kept is not None)
        with closing(_Writer(path, most)) as writer:
            for batch in self._read(part, dropped):
                writer.add(batch)
                yield batch
            if writer.finish():
                self._kept[part] = _Kept(path, dropped, samples)


@dataclass(frozen=True, slots=True)
class _Kept:
    """All of a part, as it was read."""

    path: Path
    dropped: Counter[str]
    samples: DropSamples


class _Writer:
    """Writes batches into a file, unless they are too large or cannot be written: then there is no file."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._sink: Any = None
        self._stream: Any = None
        with suppress(OSError):
            self._sink = pa.OSFile(str(path), "wb")
            self._stream = pa.ipc.new_stream(self._sink, _SCHEMA)
        self._is_whole = self._stream is not None

    def add(self, batch: Batch) -> None:
        """Write a batch."""
        if not self._is_whole:
            return
        columns = ([getattr(document, name) for document in batch] for name in _SCHEMA.names)
        try:
            arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
            self._stream.write_batch(pa.record_batch(arrays, schema=_SCHEMA))
            self._is_whole = self._sink.tell() <= self._most_bytes
        except (OSError, UnicodeEncodeError):  # the disk is full; lone surrogates
            self._is_whole = False
        if not self._is_whole:
            self.close()

    def finish(self) -> bool:
        """Complete the file; return whether it has all batches."""
        if self._is_whole:
            try:
                self._stream.close()
                self._sink.close()
            except OSError:
                self._is_whole = False
        return self._is_whole

    def close(self) -> None:
        """Delete the file, unless it is complete."""
        if self._sink is None or (self._is_whole and self._sink.closed):
            return
        self._is_whole = False
        with suppress(OSError):  # also where the folder was deleted before, after an error
            self._sink.close()
        with suppress(OSError):
            self._path.unlink()


def _batches(path: Path) -> Iterator[Batch]:
    with pa.OSFile(str(path)) as source:
        for batch in pa.ipc.open_stream(source):
            columns = batch.to_pydict()
            columns["paragraphs"] = map(tuple, columns["paragraphs"])
            yield list(map(SourceDocument, *(columns[name] for name in _SCHEMA.names)))
