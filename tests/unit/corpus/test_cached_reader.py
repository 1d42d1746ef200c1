"""Reading a corpus several times, its source once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertline.corpus import cached_reader
from bertline.corpus.cached_reader import Batch, CachedReader
from bertline.corpus.document import SourceDocument
from bertline.corpus.input_files import ShownCounts, leave_out
from bertline.corpus.quality.drops import DropSamples

BATCHES = [
    [
        SourceDocument("a.txt:1", "a", ("One.", "Two \U0001f600 lines\nhere.")),
        SourceDocument("a.txt:2", "", (), split="validation", language="de"),
    ],
    [SourceDocument("b.txt:1", "b", ("Γεια\tσου.",), split="train")],
]


class Source:
    """Yields batches and leaves two documents out."""

    def __init__(self, batches: list[Batch] = BATCHES) -> None:
        self.batches = batches
        self.times_read = 0

    def __call__(self, part: str, dropped: Counter[str]) -> Iterator[Batch]:
        self.times_read += 1
        leave_out(dropped, "documents/undecodable", "a.txt:3", "torn")
        yield from self.batches
        leave_out(dropped, "documents/undecodable", "b.txt:2", "torn too")


def reader_of(source: Source, folder: Path) -> CachedReader:
    return CachedReader(source, [""], folder, None)


def counted(one: CachedReader) -> tuple[list[Batch], dict[str, int], object]:
    samples = DropSamples()
    dropped = ShownCounts(samples.keep)
    return list(one.counted("", dropped, samples)), dict(dropped), samples.content()["samples"]


def test_a_source_is_read_once_and_all_readers_get_the_same_batches(tmp_path: Path) -> None:
    source = Source()
    one = reader_of(source, tmp_path)
    found = [list(one.ahead()), list(one.ahead("")), counted(one)[0]]
    assert found == [BATCHES] * 3
    assert source.times_read == 1


def test_a_source_over_the_limit_is_read_again_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_reader, "_MOST_BYTES", 10)
    source = Source()
    one = reader_of(source, tmp_path)
    assert list(one.ahead()) == list(one.ahead()) == BATCHES
    assert counted(one) == counted(reader_of(Source(), tmp_path))
    assert source.times_read == 3
    assert not list(tmp_path.iterdir())


def test_what_was_read_in_part_is_not_taken_for_all(tmp_path: Path) -> None:
    source = Source()
    one = reader_of(source, tmp_path)
    begun = one.ahead()
    next(begun)
    begun.close()  # type: ignore[attr-defined]
    assert counted(one)[0] == BATCHES
    assert source.times_read == 2
    assert not list(tmp_path.iterdir())
