"""Digests of inputs, kept so that content is read once, and never believed where it may have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bertline.foundation.files import sha256_of_path
from bertline.orchestration import digests
from bertline.orchestration.digests import digests_of


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Inputs whose content was read."""
    found: list[Path] = []

    def read(path: Path) -> str:
        found.append(path)
        return sha256_of_path(path)

    monkeypatch.setattr(digests, "sha256_of_path", read)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An input that has not changed for a while."""
    place = tmp_path / "examples"
    place.mkdir()
    (place / "a").write_text("abc")
    monkeypatch.setattr(digests, "_MUST_BE_OLDER_S", -1.0)  # a file system's clock ticks every few milliseconds
    return place


def test_content_is_read_once(folder: Path, tmp_path: Path, reads: list[Path]) -> None:
    expected = {"examples": sha256_of_path(folder)}
    for _ in range(2):
        assert digests_of({"examples": folder}, tmp_path / "runs") == expected
    assert reads == [folder]


@pytest.mark.parametrize("change", ["in place", "replaced", "added"])
def test_changed_content_is_read_again(folder: Path, tmp_path: Path, reads: list[Path], change: str) -> None:
    before = digests_of({"examples": folder}, tmp_path / "runs")
    times = (folder / "a").stat()
    match change:
        case "in place":
            (folder / "a").write_text("xyz")  # the same size and inode
            os.utime(folder / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
        case "replaced":
            (folder / "b").write_text("xyz")
            (folder / "b").replace(folder / "a")
        case _:
            (folder / "b").write_text("xyz")
    after = digests_of({"examples": folder}, tmp_path / "runs")
    assert after != before
    assert after == {"examples": sha256_of_path(folder)}
    assert reads == [folder, folder]


def test_the_digest_of_a_recent_change_is_not_kept(
    folder: Path, tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_MUST_BE_OLDER_S", 3600.0)
    for _ in range(2):
        digests_of({"examples": folder}, tmp_path / "runs")
    assert reads == [folder, folder]


def test_a_damaged_file_of_digests_is_replaced(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "digests.json").write_text("{")
    assert digests_of({"examples": folder}, tmp_path) == {"examples": sha256_of_path(folder)}
    assert digests_of({"examples": folder}, tmp_path) == {"examples": sha256_of_path(folder)}


def test_a_fast_clock_of_this_machine_makes_no_fresh_file_old(
    folder: Path, tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_MUST_BE_OLDER_S", 60.0)
    here = time.time()
    monkeypatch.setattr(time, "time", lambda: here + 3600)
    for _ in range(2):
        digests_of({"examples": folder}, tmp_path / "runs")
    assert reads == [folder, folder]
