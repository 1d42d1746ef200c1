"""Files are whole or absent; digests see content and names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bertline.foundation.errors import ArtifactError, MachineError
from bertline.foundation.files import folder_written_atomically, read_json, sha256_of_path, write_atomically, write_json


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
