"""Reading a corpus several times, its source once: what is read ahead is kept in a temporary file, up to a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bertline.corpus.document import SourceDocument
from bertline.corpus.input_files import ShownCounts, counts_of_source
from bertline.corpus.quality.drops import DropSamples
from bertline.foundation.files import writing

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
        """Take what reads the corpus."""
        self.parts = parts
        self._read = read
        self._folder = folder
        self._source_of = source_of
        self._cached: dict[str, _Cached | None] = {}

    def ahead(self, *parts: str) -> Iterator[Batch]:
        """Read parts of the corpus, or all of it, to learn from it: nothing that is left out is counted."""
        for part in parts or self.parts:
            if part not in self._cached:
                yield from self._write_while_reading(part)
            elif (cached := self._cached[part]) is not None:
                yield from _batches(cached.path)
            else:
                yield from self._read(part, Counter())

    def counted(self, part: str, dropped: Counter[str], samples: DropSamples) -> Iterator[Batch]:
        """Read a part for the corpus, the last time: what is left out is counted, and shown if `dropped` shows it."""
        cached = self._cached.get(part)
        if cached is None:
            yield from self._read(part, dropped)
            return
        yield from _batches(cached.path)
        cached.path.unlink()
        del self._cached[part]
        dropped.update(cached.dropped)
        samples.take(cached.samples)

    def _write_while_reading(self, part: str) -> Iterator[Batch]:
        """Read a part and write it to a file, which stays if all of it was read and fits.

        Raises:
            MachineError: The file cannot be written.
        """
        self._cached[part] = None  # until all of it is written
        samples = DropSamples()
        samples.source_of = self._source_of
        shown = ShownCounts(samples.keep)
        dropped = counts_of_source(shown, part) if part else shown
        path = self._folder / f"read-{self.parts.index(part)}.arrow"
        room = _MOST_BYTES - sum(one.path.stat().st_size for one in self._cached.values() if one is not None)
        fits, is_whole = True, False
        with writing(path):
            sink = pa.OSFile(str(path), "wb")
        stream = pa.ipc.new_stream(sink, _SCHEMA)
        try:
            for batch in self._read(part, dropped):
                if fits:
                    with writing(path):
                        fits = _write(batch, stream) and sink.tell() <= room
                yield batch
            is_whole = fits
        finally:
            with suppress(OSError):
                stream.close()
            sink.close()
            if not is_whole:
                path.unlink(missing_ok=True)
        if is_whole:
            self._cached[part] = _Cached(path, dropped, samples)


@dataclass(frozen=True, slots=True)
class _Cached:
    """All of a part, as it was read."""

    path: Path
    dropped: Counter[str]
    samples: DropSamples


def _write(batch: Batch, stream: pa.ipc.RecordBatchStreamWriter) -> bool:
    columns = ([getattr(document, name) for document in batch] for name in _SCHEMA.names)
    try:
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    except UnicodeEncodeError:  # lone surrogates, which Arrow does not store
        return False
    stream.write_batch(pa.record_batch(arrays, schema=_SCHEMA))
    return True


def _batches(path: Path) -> Iterator[Batch]:
    with pa.OSFile(str(path)) as source:
        for batch in pa.ipc.open_stream(source):
            columns = batch.to_pydict()
            columns["paragraphs"] = map(tuple, columns["paragraphs"])
            yield list(map(SourceDocument, *(columns[name] for name in _SCHEMA.names)))
