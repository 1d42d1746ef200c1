"""Files are whole or absent; digests see content and names."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bertline.foundation.errors import MachineError
from bertline.foundation.files import (
    append_lines,
    drop_leftovers,
    file_written_atomically,
    folder_written_atomically,
    lock_file,
    locked,
    plain_error,
    sha256_of_path,
    write_atomically,
)


@pytest.mark.parametrize(
    ("write", "content", "patched"), [(write_atomically, "3\n", (os, "fsync")), (append_lines, ["3"], (Path, "open"))]
)
def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch, write, content, patched) -> None:
    path = tmp_path / "new" / "a.jsonl"
    append_lines(path, ["1"])
    append_lines(path, ["2"])

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(MachineError, match=r"a.jsonl cannot be written: No space left"):
        patch.setattr(*patched, full)
        write(path, content)
    assert path.read_text() == "1\n2\n"
    assert [file.name for file in path.parent.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_writer_that_ends_early_leaves_the_old_file_and_no_litter(tmp_path: Path, error: type) -> None:
    (tmp_path / "weights").write_text("old")
    with pytest.raises(error), file_written_atomically(tmp_path / "weights") as temporary:
        temporary.write_text("half of the new")
        raise error
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"weights": "old"}


def test_an_error_keeps_the_folder_that_was_there(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    target.mkdir()
    (target / "part").write_text("old")
    with pytest.raises(RuntimeError), folder_written_atomically(target) as temporary:
        (temporary / "part").write_text("half")
        raise RuntimeError
    assert (target / "part").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


@pytest.mark.parametrize(
    ("failing", "says"),
    [
        (lambda folder: (folder / "file" / "runs").mkdir(), r"file/runs cannot be used: Not a directory"),
        (lambda folder: (folder / "file").mkdir(), r"/file cannot be used: File exists"),
        (lambda _: Path("/dev/full").write_text("x"), "a file cannot be used: No space left on device"),
        (lambda folder: (folder / "missing").read_text(), ""),
    ],
)
def test_what_a_person_can_fix_of_an_error_of_the_system_is_said_plainly(tmp_path: Path, failing, says: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError) as error:
        failing(tmp_path)
    plain = plain_error(error.value)
    assert re.search(says, str(plain)) if says else plain is None


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


KILLED = """
import os, pathlib, signal, sys
from bertline.foundation.files import folder_written_atomically, write_atomically
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
path = pathlib.Path(sys.argv[1])
"""
WRITES_A_FOLDER = """
with folder_written_atomically(path) as folder:
    (folder / "part").write_text("new")
"""


def killed(script: str, target: Path, folder: Path) -> None:
    """Run a writer of `target` in `folder` that is killed on its way."""
    done = subprocess.run([sys.executable, "-c", KILLED + script, str(target)], check=False, cwd=folder)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("script", ["os.fsync = die\nwrite_atomically(path, 'half')", WRITES_A_FOLDER + "    die()"])
def test_what_a_killed_writer_leaves_is_known_as_such(tmp_path: Path, script: str) -> None:
    killed(script, tmp_path / "a.json", tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    drop_leftovers(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_held_by_one_or_shared_by_many(tmp_path: Path) -> None:
    """Two handles stand for two processes: `flock` is held by the open file."""
    path = tmp_path / "lock"
    with path.open("a+") as first, path.open("a+") as second:
        assert lock_file(first) is True and lock_file(second) is False
    with path.open("a+") as first, path.open("a+") as second:
        assert lock_file(first, shared=True) is True and lock_file(second, shared=True) is True


@pytest.mark.usefixtures("no_locks")
def test_a_file_system_without_locks_is_told_from_a_lock_of_another(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("a+") as handle:
        assert [lock_file(handle), lock_file(handle, wait=True), lock_file(handle, shared=True)] == [None, None, None]
    with locked(tmp_path / "lock"):
        pass
