"""Folders: each way in which a file system can fail a run is red, and a trial leaves nothing behind."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from bertline.doctor import folders, speed
from bertline.doctor.folders import Folder, folder_findings, linked_folders, speed_finding
from bertline.doctor.speed import Speed, measure


def found(folder):
    return {one.check.partition(": ")[2]: one for one in folder_findings(folder)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that is measured quickly."""
    for module, name in ((speed, "_WRITE_S"), (speed, "_READ_S"), (folders, "_REPLACE_S")):
        monkeypatch.setattr(module, name, 0.1)
    path = tmp_path / "runs"
    path.mkdir()
    return Folder(title="runs", path=path, needed_bytes=1000, setting="runtime.runs_folder")


def test_a_good_folder_is_green_and_stays_empty(folder, monkeypatch):
    monkeypatch.setattr(folders, "_SLOW_PAGES_PER_S", 0.0)  # other work may keep the disk of these tests busy
    lines = found(folder)
    assert {name: one.status for name, one in lines.items()} == dict.fromkeys(
        ("space", "lock", "rename", "speed"), "green"
    )
    assert lines["speed"].measured["written_bytes_per_s"] > 0
    assert list(folder.path.iterdir()) == []


def test_a_folder_that_is_not_there_yet_is_judged_by_the_one_above_it(folder):
    missing = Folder(title="cache", path=folder.path / "a/b", needed_bytes=0)
    assert found(missing)["lock"].status == "green"
    assert list(folder.path.iterdir()) == []


def test_too_little_space_is_red_and_names_the_setting(folder):
    line = found(Folder(title="runs", path=folder.path, needed_bytes=10**18, setting="runtime.runs_folder"))["space"]
    assert (line.status, "runtime.runs_folder" in line.fix) == ("red", True)


def test_a_file_system_with_room_for_few_more_files_is_red(folder, few_inodes):
    line = found(Folder(title="runs", path=few_inodes, needed_bytes=0))["space"]
    assert (line.status, line.fix) == ("red", "Delete files there.")
    assert re.search(r"but only \d\d more files", line.found)


def test_a_file_system_without_flock_is_red(folder, monkeypatch):
    def refused(handle, flags):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refused)
    line = found(folder)["lock"]
    assert (line.status, "flock is refused" in line.found, "-o flock" in line.fix) == ("red", True, True)


def test_locks_that_lock_nothing_are_red(folder, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda handle, flags: None)
    assert "locked again" in found(folder)["lock"].found


def test_a_file_system_without_the_locks_of_sqlite_is_red(folder, monkeypatch):
    def refused(handle, flags):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refused)
    assert "SQLite" in found(folder)["lock"].found


@pytest.mark.parametrize("way", ["copied", "removed first"])
def test_a_rename_that_is_not_atomic_is_red(folder, monkeypatch, way):
    seen, read = threading.Event(), Path.read_text

    def read_text(path):
        content = ""
        try:
            content = read(path)
        finally:
            if len(content) < folders._CONTENT:
                seen.set()
        return content

    def copied(source, target):
        content = source.read_text()
        with target.open("w") as new:
            new.write(content[:100])
            new.flush()
            assert seen.wait(600)
            new.write(content[100:])

    def removed(source, target):
        target.unlink()
        assert seen.wait(600)
        shutil.copyfile(source, target)

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(os, "replace", copied if way == "copied" else removed)
    line = found(folder)["rename"]
    assert line.status == "red"
    assert ("half of a file" if way == "copied" else "No such file") in line.found


def test_a_folder_that_may_not_be_written_is_red_and_data_may_be_read_only(folder, monkeypatch):
    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(folders.tempfile, "TemporaryDirectory", read_only)
    line = found(folder)["write"]
    assert (line.status, "Read-only file system" in line.found) == ("red", True)
    (folder.path / "text.txt").write_bytes(bytes(10**6))
    lines = found(Folder(title="data", path=folder.path, needed_bytes=0, is_input=True))
    assert {name: one.status for name, one in lines.items()} == {"write": "unused", "speed": "green"}
    assert "text.txt" in lines["speed"].found


def test_a_full_disk_is_red(folder, small_disk):
    (small_disk / "large").write_bytes(bytes(200 * 1024))
    line = found(Folder(title="runs", path=small_disk, needed_bytes=0))["write"]
    assert (line.status, "No space left on device" in line.found) == ("red", True)


def test_a_file_server_with_a_wrong_clock_is_red(folder, monkeypatch):
    monkeypatch.setattr(folders.time, "time", lambda: 0.0)
    assert found(folder)["clock"].status == "red"


def test_measuring_takes_as_long_on_a_slow_disk(folder, monkeypatch):
    sync = os.fsync

    clock = SimpleNamespace(now_s=0.0)

    def look():
        clock.now_s += 0.001
        return clock.now_s

    def slow(descriptor):
        clock.now_s += 0.2
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    monkeypatch.setattr(speed, "time", SimpleNamespace(monotonic=look))
    measured = measure(folder.path)
    assert clock.now_s < 1
    assert measured.written_bytes_per_s < 10e6


@pytest.mark.parametrize(
    ("rates", "status"),
    [((1e9, 1e5), "green"), ((1e6, 1e5), "red"), ((1e9, 100.0), "note")],
)
def test_speed_is_judged_by_the_checkpoint_that_training_waits_for_and_by_random_reads(folder, rates, status):
    large = Folder(title="runs", path=folder.path, needed_bytes=0, checkpoint_bytes=10**8)
    measured = Speed(written_bytes_per_s=rates[0], read_bytes_per_s=1e9, pages_per_s=rates[1])
    line = speed_finding(large, measured)
    assert line.status == status
    assert status != "red" or "a checkpoint takes 100 s" in line.found


def test_the_speed_of_one_file_system_is_measured_once(folder):
    lines = {one.check: one.found for one in folder_findings(folder, measured_as="cache")}
    assert lines["runs: speed"] == "the file system of cache, see there"


def test_data_that_is_not_there_is_not_used_and_links_in_it_are_followed(folder):
    data = Folder(title="data", path=folder.path / "data", needed_bytes=0, is_input=True)
    assert {one.status for one in folder_findings(data)} == {"unused"}
    assert linked_folders(data) == []
    data.path.mkdir()
    (data.path / "text").symlink_to("/dev/shm")
    (data.path / "own").mkdir()
    assert [(one.title, str(one.path)) for one in linked_folders(data)] == [("data/text", "/dev/shm")]


def test_a_file_that_goes_while_a_folder_of_inputs_is_looked_at_is_not_measured(folder, monkeypatch):
    (folder.path / "text.txt").write_bytes(bytes(10**6))
    there = folders.files_now_in
    monkeypatch.setattr(folders, "files_now_in", lambda path: [path / "gone", *there(path)])
    (line,) = folders._reading(Folder(title="data", path=folder.path, needed_bytes=0, is_input=True))
    assert (line.status, "text.txt" in line.found) == ("green", True)
