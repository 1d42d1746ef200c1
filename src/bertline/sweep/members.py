"""Names of the processes that take work of a sweep, by which those of this machine see that one has died."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

from bertline.foundation.liveness import has_ended, machine, pid_namespace, start_of


def member_name() -> str:
    """Return a name for this process, `MACHINE:PID:START`, that no other process of any machine has had."""
    return f"{_machine()}:{os.getpid()}:{start_of(os.getpid())}"


def has_died(name: str) -> bool:
    """Return whether a process of this machine has ended; False for those of other machines, whose state is unknown."""
    of_machine, _, process = name.partition(":")
    pid, _, start = process.partition(":")
    return of_machine == _machine() and pid.isdecimal() and has_ended(int(pid), start=start)


def same_machine(name: str) -> bool:
    """Return whether a process is or was on this machine, since its last start."""
    return name.partition(":")[0] == _machine()


def note_done(run_folder: Path) -> None:
    """Note that this task of a job array (BERTLINE_JOIN) has done a unit of work; nothing where there is no array."""
    if task := os.environ.get("BERTLINE_JOIN"):
        with suppress(OSError), _done_file(run_folder, task).open("a") as handle:
            handle.write(".")


def num_done(run_folder: Path, task: str) -> int:
    """Return the number of units of work that a task of a job array has done."""
    path = _done_file(run_folder, task)
    return path.stat().st_size if path.exists() else 0


def _done_file(run_folder: Path, task: str) -> Path:
    return run_folder / f"{task}.done"


@cache
def _machine() -> str:
    """Return an identity of what the process ids belong to: this boot of this machine, or a container on it."""
    return hashlib.sha256("\0".join((platform.node(), machine(), pid_namespace())).encode()).hexdigest()[:12]
