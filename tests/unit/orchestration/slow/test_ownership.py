"""Ownership of a run folder: by a lock of the file system, and by a heartbeat where that lock does not reach."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bertline.orchestration import ownership
from bertline.orchestration.ownership import Owner, age_s, hold_lock, is_locked, time_in

HOLDS = """
import sys, time
from pathlib import Path
from bertline.orchestration.ownership import hold_lock
with hold_lock(Path(sys.argv[1])) as held:
    print(held, flush=True)
    time.sleep(600)
"""


def owner(**changes: Any) -> Owner:
    fields: dict[str, Any] = {
        "token": "other",
        "host": "node7",
        "machine": "another start of another machine",
        "pid": 1,
        "pids": "pid:[1]",
        "job": None,
        "locks": True,
    }
    return Owner(**{**fields, **changes})


def left_by(folder: Path, other: Owner, *, silent_s: float = 0.0) -> Path:
    """Writes the file of an owner that renewed it that many seconds ago."""
    path = folder / "owner.json"
    path.write_text(json.dumps(asdict(other)))
    then = time.time() - silent_s
    os.utime(path, (then, then))
    return path


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a mount of Lustre without flock, from now on; the fixture `no_locks` begins before the test."""

    def refuse(handle: Any, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", refuse)


def started(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_only_one_holds_the_folder_and_leaves_it_free(tmp_path: Path) -> None:
    with hold_lock(tmp_path) as held, hold_lock(tmp_path) as second:
        assert (held, second) == (True, False)
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    assert not (tmp_path / "owner.json").exists()


def test_a_killed_owner_of_this_machine_is_gone_at_once(tmp_path: Path) -> None:
    process = started(tmp_path)
    assert is_locked(tmp_path)
    killed(process)
    assert (tmp_path / "owner.json").exists()
    with hold_lock(tmp_path) as held:
        assert held


@pytest.mark.usefixtures("no_locks")
def test_without_locks_the_heartbeat_keeps_others_out(tmp_path: Path) -> None:
    with hold_lock(tmp_path) as held:
        assert held
        assert is_locked(tmp_path)
        with hold_lock(tmp_path) as second:
            assert not second
    assert not is_locked(tmp_path)


def test_without_locks_a_killed_owner_of_this_machine_is_gone_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started(tmp_path)
    without_locks(monkeypatch)
    assert is_locked(tmp_path)
    killed(process)
    assert not is_locked(tmp_path)


def test_an_owner_of_another_machine_is_gone_when_its_heartbeat_stops(tmp_path: Path) -> None:
    left_by(tmp_path, owner(), silent_s=ownership.GRACE_S / 2)
    with hold_lock(tmp_path) as held:
        assert not held
    assert is_locked(tmp_path)
    left_by(tmp_path, owner(), silent_s=ownership.GRACE_S + 1)
    assert not is_locked(tmp_path)
    with hold_lock(tmp_path) as held:
        assert held


def test_the_owner_renews_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "BEAT_S", 0.05)
    with hold_lock(tmp_path):
        path = tmp_path / "owner.json"
        os.utime(path, (0, 0))
        wait_for(lambda: path.stat().st_mtime > 0)
        path.unlink()
        wait_for(path.exists)


def test_one_of_many_takes_over_from_a_silent_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_locks(monkeypatch)
    for _ in range(10):
        left_by(tmp_path, owner(), silent_s=ownership.GRACE_S + 1)
        together, done = threading.Barrier(8), threading.Barrier(8)
        held: list[bool] = []

        def take(together: threading.Barrier, done: threading.Barrier, held: list[bool]) -> None:
            together.wait()
            with hold_lock(tmp_path) as is_held:
                held.append(is_held)
                done.wait()

        threads = [threading.Thread(target=take, args=(together, done, held)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert held.count(True) == 1


BEATS_OFTEN = """
import sys, time
from pathlib import Path
from bertline.orchestration import ownership
ownership.BEAT_S, ownership.GRACE_S = 0.05, 0.0  # any silence is too long
with ownership.hold_lock(Path(sys.argv[1])):
    print("holds", flush=True)
    try:
        time.sleep(600)
    finally:
        (Path(sys.argv[1]) / "status.json").write_text("of the old owner")
"""


@pytest.mark.parametrize("the_other", ["works", "has finished"])
def test_an_owner_that_was_taken_for_gone_ends_and_writes_nothing(tmp_path: Path, the_other: str) -> None:
    command = [sys.executable, "-c", BEATS_OFTEN, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    process.send_signal(signal.SIGSTOP)  # its machine sleeps, or is cut off
    (tmp_path / "owner.json").unlink()
    if the_other == "works":
        left_by(tmp_path, owner())
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == ownership.ALREADY_RUNNING
    assert ("node7 works in" if the_other == "works" else "another one may have worked") in said
    assert not (tmp_path / "status.json").exists()
    assert (tmp_path / "owner.json").exists() == (the_other == "works")


def test_ages_are_measured_by_the_file_servers_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, begun = tmp_path / "file", time.monotonic()
    path.touch()
    monkeypatch.setattr(ownership.time, "time", lambda: 1e12)  # a clock that is wrong
    age = age_s(path)
    assert age is not None
    assert 0 <= age <= time.monotonic() - begun + 0.1  # a file system's clock ticks every few milliseconds
    assert list(tmp_path.iterdir()) == [path]
    assert age_s(tmp_path / "missing") is None


def test_a_torn_file_of_an_owner_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "owner.json").write_text('{"token": "ab')
    assert not is_locked(tmp_path)
    with hold_lock(tmp_path) as held:
        assert held


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 600
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_two_that_look_at_once_do_not_take_each_other_for_an_owner(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w+") as looks:
        fcntl.flock(looks, fcntl.LOCK_SH | fcntl.LOCK_NB)  # as `is_locked` does, for a moment
        assert not is_locked(tmp_path)


def test_the_clock_of_a_file_server_is_read_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = time.time()
    monkeypatch.setattr(time, "time", lambda: here + 3600)  # this machine's clock is an hour ahead
    assert abs(time_in(tmp_path) - here) < 60
    assert list(tmp_path.iterdir()) == []
