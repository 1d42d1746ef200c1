"""Processes that share a variable of their environment: found and ended, also when the one who started them is killed.

    python found_processes.py OWNER '{"variable": "SLURM_CONF=/x", "folder": "/y", "commands": [["ip", "..."]]}'

waits for the end of the process OWNER, then kills all that have the variable, runs the commands and deletes the folder
(or none, if it is null).
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

ENDED_S = 600.0
"""Seconds in which killed processes must have ended."""


def having(variable: str) -> list[int]:
    """Return the ids of all processes that have a variable, as `NAME=VALUE`, in their environment.

    This process and those that it descends from do not count.
    """
    apart = _ancestry()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            ended = (folder / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            continue
        if os.fsencode(variable) in variables and not ended and int(folder.name) not in apart:
            found.append(int(folder.name))
    return found


def parent(pid: int) -> int:
    """Return the parent of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def has_pending(pid: int, number: int) -> bool:
    """Whether a signal was sent to a process that has not taken it yet."""
    status = Path(f"/proc/{pid}/status").read_text()
    return any(int(found, 16) >> (number - 1) & 1 for found in re.findall(r"(?:SigPnd|ShdPnd):\s*(\w+)", status))


def end(find: Callable[[], list[int]], *, within_s: float | None = None) -> None:
    """Kill until none is found: those that were killed take a moment, and may have started others before.

    Raises:
        TimeoutError: Some do not end; with their commands.
    """
    within_s = ENDED_S if within_s is None else within_s
    deadline = time.monotonic() + within_s
    while left := find():
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            named = ", ".join(f"{pid} ({_command(pid)})" for pid in left)
            raise TimeoutError(f"killed, but they do not end in {within_s:g} s: {named}")
        time.sleep(0.05)


def watched(variable: str, folder: Path | None, commands: Sequence[Sequence[str]]) -> subprocess.Popen[bytes]:
    """Start the process that cleans up if this one is killed; who has cleaned up by itself kills it."""
    what = json.dumps({"variable": variable, "folder": folder and str(folder), "commands": commands})
    # In a session of its own: a signal to all processes of a terminal or a job does not reach it.
    return subprocess.Popen([sys.executable, "-I", __file__, str(os.getpid()), what], start_new_session=True)


def _ancestry() -> set[int]:
    found, pid = set(), os.getpid()
    while pid > 0:
        found.add(pid)
        pid = parent(pid)
    return found


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return words or Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"


def _main(owner: int, variable: str, folder: str | None, commands: list[list[str]]) -> None:
    with suppress(ProcessLookupError):  # it has ended already
        handle = os.pidfd_open(owner)
        if os.getppid() == owner:  # else its number may be another process's by now
            select.select([handle], [], [])
    end(lambda: having(variable))
    for command in commands:
        subprocess.run(command, capture_output=True)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main(int(sys.argv[1]), **json.loads(sys.argv[2]))
