"""Files are whole or absent; digests see content and names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertline.foundation.errors import ArtifactError, MachineError
from bertline.foundation.files import (
    append_lines,
    drop_leftovers,
    folder_written_atomically,
    read_json,
    sha256_of_path,
    sync_to_disk,
    write_atomically,
    write_json,
)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineError, match="a.json cannot be written: No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    with folder_written_atomically(target) as temporary:
        (temporary / "part").write_text("new")
        assert not target.exists()
    assert (target / "part").read_text() == "new"


def test_an_error_keeps_the_folder_that_was_there(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    target.mkdir()
    (target / "part").write_text("old")
    with pytest.raises(RuntimeError), folder_written_atomically(target) as temporary:
        (temporary / "part").write_text("half")
        raise RuntimeError
    assert (target / "part").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(MachineError, match=r"file/artifact cannot be written"),
        folder_written_atomically(tmp_path / "file" / "artifact"),
    ):
        pass


def test_missing_and_torn_json_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="missing"):
        read_json(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text('{"a": ')
    with pytest.raises(ArtifactError, match="torn.json is not valid JSON"):
        read_json(tmp_path / "torn.json")


def test_equal_content_is_equal_bytes(tmp_path: Path) -> None:
    write_json(tmp_path / "1.json", {"b": 1, "a": 2})
    write_json(tmp_path / "2.json", {"a": 2, "b": 1})
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


def test_the_digest_of_a_folder_sees_names_and_content_but_no_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    first = sha256_of_path(tmp_path)
    (tmp_path / ".hidden").write_text("2")
    assert sha256_of_path(tmp_path) == first
    (tmp_path / "a").rename(tmp_path / "b")
    assert sha256_of_path(tmp_path) != first


def test_what_killed_writers_left_is_dropped_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "latest"
    for name in (".latest.a1b2c3_4", "latest", ".latest.old", ".latest2.a1b2c3_4", "latest.a1b2c3_4"):
        (tmp_path / name).mkdir()
    (tmp_path / ".latest.zzzzzzzz").write_text("")
    drop_leftovers(target)
    assert {path.name for path in tmp_path.iterdir()} == {
        "latest",
        ".latest.old",
        ".latest2.a1b2c3_4",
        "latest.a1b2c3_4",
    }


@pytest.mark.parametrize(
    "write",
    ["write_atomically(path, 'half')", "folder = folder_written_atomically(path); folder.__enter__(); os.fsync(0)"],
)
def test_what_a_killed_writer_leaves_is_known_as_such(tmp_path: Path, write: str) -> None:
    code = f"""
import os, pathlib
from bertline.foundation.files import folder_written_atomically, write_atomically
os.fsync = lambda descriptor: os._exit(9)
path = pathlib.Path({str(tmp_path / "a.json")!r})
{write}
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    drop_leftovers(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_lines_are_added_at_the_end_and_a_full_disk_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    append_lines(path, ["1", "2"])
    append_lines(path, ["3"])
    assert path.read_text() == "1\n2\n3\n"

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(MachineError, match=r"rows.jsonl cannot be written: No space left"):
        append_lines(path, ["4"])


def test_waiting_for_the_disk_names_the_file_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync_to_disk(tmp_path / "missing")
    (tmp_path / "a").write_text("")
    sync_to_disk(tmp_path / "a")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineError, match="a cannot be written: No space left"):
        sync_to_disk(tmp_path / "a")
