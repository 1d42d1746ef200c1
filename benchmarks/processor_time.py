"""Processor time of work that goes on in detached processes and is resumed after a kill, from proc(5)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_EVERY_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process at a moment."""

    pid: int
    parent: int
    start: int
    """Ticks since the machine's start; with `pid` it names the process for good."""
    seconds: float
    """Processor time, user and system, with that of all children that have ended and were waited for."""


class ProcessorTime:
    """Samples the processor time of all processes whose command line names a text, with their descendants.

    A killed process was last seen up to ten seconds before its end, and a child that nobody waited for is lost with it,
    so the sum is slightly too small after a kill.

    Args:
        path: JSON file with the seconds of each process seen so far; a later sampler of the same file adds to it.
        folder: Working folder of the processes.
        named: Text in their command line.
    """

    def __init__(self, path: Path, *, folder: Path, named: str) -> None:
        self._path, self._folder, self._named = path, folder.resolve(), named
        self._seen: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_ended, daemon=True)

    def __enter__(self) -> ProcessorTime:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """Sum over all processes seen so far, in seconds."""
        return sum(self._seen.values())

    def sample(self) -> None:
        """Look at the processes once, and write the file if any of them is there."""
        processes = {one.pid: one for one in running()}
        roots = [pid for pid in processes if self._is_meant(pid)]
        roots = [pid for pid in roots if processes[pid].parent not in roots]
        for root in roots:
            name = f"{root}-{processes[root].start}"
            self._seen[name] = max(self._seen.get(name, 0.0), seconds_of_tree(root, processes))
        if roots:
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps(self._seen), encoding="utf-8")
            part.replace(self._path)

    def _sample_until_ended(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self.sample()

    def _is_meant(self, pid: int) -> bool:
        try:
            command = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            return self._named in command and (_PROC / str(pid) / "cwd").resolve() == self._folder
        except OSError:  # it has ended meanwhile
            return False


def running() -> Iterator[Process]:
    """Yield all processes of this machine; none where the system has no proc(5)."""
    tick = os.sysconf("SC_CLK_TCK")
    for folder in _PROC.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        fields = text.rpartition(")")[2].split()  # the name before them, in brackets, may have spaces
        times = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
        yield Process(pid=int(folder.name), parent=int(fields[1]), start=int(fields[19]), seconds=times / tick)


def seconds_of_tree(root: int, processes: dict[int, Process]) -> float:
    """Return the processor time of a process and of all its descendants.

    >>> one, two = Process(pid=1, parent=0, start=5, seconds=2.0), Process(pid=2, parent=1, start=6, seconds=0.5)
    >>> three = Process(pid=3, parent=0, start=7, seconds=8.0)
    >>> seconds_of_tree(1, {1: one, 2: two, 3: three})
    2.5
    """
    children = [one.pid for one in processes.values() if one.parent == root]
    return processes[root].seconds + sum(seconds_of_tree(child, processes) for child in children)
