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
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

ENDED_S = 600.0
"""Seconds in which killed processes must have ended."""


def having(variable: str) -> list[psutil.Process]:
    """Return all processes that have a variable, as `NAME=VALUE`, in their environment.

    This process and those that it descends from do not count.
    """
    name, _, value = variable.partition("=")
    apart = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # ended meanwhile
            if process.pid not in apart and process.environ().get(name) == value:
                found.append(process)
    return found


def has_pending(pid: int, number: int) -> bool:
    """Whether a signal was sent to a process that has not taken it yet."""
    status = Path(f"/proc/{pid}/status").read_text()
    return any(int(found, 16) >> (number - 1) & 1 for found in re.findall(r"(?:SigPnd|ShdPnd):\s*(\w+)", status))


def end(find: Callable[[], list[psutil.Process]]) -> None:
    """Kill until none is found: those that were killed take a moment, and may have started others before.

    Raises:
        TimeoutError: Some do not end; with their names.
    """
    deadline = time.monotonic() + ENDED_S
    while left := find():
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if time.monotonic() > deadline:
            raise TimeoutError(f"killed, but they do not end in {ENDED_S:g} s: {', '.join(map(str, left))}")
        time.sleep(0.05)


def watched(variable: str, folder: Path | None, commands: Sequence[Sequence[str]]) -> subprocess.Popen[bytes]:
    """Start the process that cleans up if this one is killed; who has cleaned up by itself kills it."""
    what = json.dumps({"variable": variable, "folder": folder and str(folder), "commands": commands})
    # In a session of its own: a signal to all processes of a terminal or a job does not reach it.
    return subprocess.Popen([sys.executable, "-I", __file__, str(os.getpid()), what], start_new_session=True)


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
