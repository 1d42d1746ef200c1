"""Whether a process has ended: one that works, one that is a zombie, one that is gone, and a later one with its id."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertline.foundation import liveness
from bertline.foundation.liveness import has_ended, machine, pid_namespace, start_of

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_this_process_has_not_ended() -> None:
    assert not has_ended(os.getpid())
    assert not has_ended(os.getpid(), start=start_of(os.getpid()))


@ON_LINUX
def test_a_process_has_ended_as_soon_as_it_is_killed_even_if_its_parent_does_not_ask() -> None:
    process = subprocess.Popen(["sleep", "600"])
    start = start_of(process.pid)
    assert not has_ended(process.pid, start=start)
    process.kill()
    deadline = time.monotonic() + 600
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert has_ended(process.pid, start=start)
    process.wait()
    assert has_ended(process.pid, start=start)
    assert has_ended(process.pid)


@ON_LINUX
def test_a_later_process_with_the_same_id_is_another_one() -> None:
    assert has_ended(os.getpid(), start=str(int(start_of(os.getpid())) - 1))
    assert not has_ended(os.getpid(), start="")  # nobody knows


@ON_LINUX
def test_the_start_is_read_whatever_the_name_of_the_program(tmp_path: Path) -> None:
    odd = tmp_path / "a) Z (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([odd, "600"])
    try:
        deadline = time.monotonic() + 600
        while "a) Z (b" not in Path(f"/proc/{process.pid}/stat").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert int(start_of(process.pid)) >= int(start_of(os.getpid()))
        assert not has_ended(process.pid)
    finally:
        process.kill()
        process.wait()


def test_where_the_system_does_not_tell_the_id_and_the_name_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_BOOT", "_PIDS"):
        monkeypatch.setattr(liveness, name, Path("/nowhere"))
    monkeypatch.setattr(liveness, "_state_and_start", lambda pid: ("", ""))
    assert machine()
    assert pid_namespace() == ""
    assert not has_ended(os.getpid(), start="12")
    process = subprocess.Popen(["true"])
    process.wait()
    assert has_ended(process.pid)


def test_a_process_of_another_user_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not has_ended(os.getpid())
