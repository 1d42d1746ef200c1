from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from bertline.corpus.document import Dropped
from bertline.corpus.files import find_files
from bertline.corpus.readers.table import TableReader
from bertline.corpus.readers.text import TextReader
from bertline.foundation.checked import user_data_in
from bertline.foundation.errors import DataError
from reading import read


def test_a_folder_a_link_to_one_and_a_glob_are_searched_in_order_of_names(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    for name in ("b.txt", "a/z.TXT.gz", "a.txt", "notes.pdf", ".hidden.txt", ".git/c.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text")
    (tmp_path / "link").symlink_to(folder)

    for place in (folder, tmp_path / "link"):
        parts, dropped = find_files(str(place), (".txt",))
        assert [part.name for part in parts] == ["a.txt", "a/z.TXT.gz", "b.txt"]
        assert dropped == [Dropped("files/other_suffix", "notes.pdf")]
    of_glob, _ = find_files(f"{folder}/*o*", (".txt",))
    assert [part.name for part in of_glob] == ["notes.pdf"], "whatever its ending"


def test_a_path_that_matches_nothing_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.*matches nothing"):
        find_files(str(tmp_path / "nowhere"), (".txt",))
    (tmp_path / "report.pdf").write_text("text")
    with pytest.raises(DataError, match=r"holds no file ending in .txt"):
        find_files(str(tmp_path), (".txt",))


def test_a_file_that_changes_after_the_plan_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.\n")
    reader = TextReader(
        kind="text", path=str(tmp_path), document="line", document_start=None, encoding="utf-8",
        on_undecodable="skip",
    )  # fmt: skip
    (shard,), _ = reader.plan(1_000)
    (tmp_path / "a.txt").write_text("One, and more.\n")
    with pytest.raises(DataError, match=r"a\.txt has changed while it was read"):
        list(reader.read_shard(shard))
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"a\.txt cannot be read: No such file"):
        list(reader.read_shard(shard))


class _EndsEarly(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """An object store that gives less than it said."""

    protocol = "early"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("early:/")))

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> io.BytesIO:
        return io.BytesIO(super()._open(path, mode, **kwargs).read()[:-10])


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_text_is_read_from_an_object_store_and_one_that_ends_early_is_an_error_and_no_shorter_text(policy: Any) -> None:
    fsspec.register_implementation("early", _EndsEarly, clobber=True)
    with fsspec.open("memory://bucket/a.jsonl", "w") as file:
        file.write("".join(f'{{"text": "Text {number}."}}\n' for number in range(100)))
    reader = TableReader(
        kind="jsonl", path="memory://bucket", text_column="text", group_column=None, on_undecodable=policy
    )
    found = list(read(reader, shard_bytes=500))
    assert [item.paragraphs for item in found] == [(f"Text {number}.",) for number in range(100)]
    assert not any(data.is_here for data in user_data_in(reader))
    with pytest.raises(DataError, match="memory://nowhere.*matches nothing"):
        dataclasses.replace(reader, path="memory://nowhere").plan(500)
    early = dataclasses.replace(reader, path="early://bucket")
    with pytest.raises(DataError, match=r"early:/+bucket/a\.jsonl cannot be read: it ended 10 bytes early"):
        list(read(early, shard_bytes=500))
