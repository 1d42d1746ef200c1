"""A fixed share of a processor core for a thread, by control groups of Linux, version 1 or 2; needs root."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 10_000
"""Short, so that a computation of milliseconds is slowed down evenly."""


def why_not() -> str | None:
    """Return why no share can be given here; None if it can."""
    try:
        with CpuShares(1.0):
            return None
    except OSError as error:
        return f"control groups of the processor cannot be made here ({error}): run as root, with --privileged"


class CpuShares:
    """Groups of threads, each of which gets a share of one core and no more; a context manager that removes them."""

    def __init__(self, share: float) -> None:
        """Take a share, between 0.1 and the number of cores."""
        self.share = share
        self._is_old = (_ROOT / "cpu" / "cpu.cfs_quota_us").exists()
        self._folder = _ROOT / ("cpu" if self._is_old else "") / f"bertline-{os.getpid()}"
        self._made: list[Path] = []

    def add(self, pid: int) -> None:
        """Give the first thread of a process a share of its own; its other threads have all that is free.

        On the CPU the first thread computes, backward too, and other threads communicate: as a GPU's network adapter,
        they do not wait for computing.
        """
        group = self._folder / str(pid)
        group.mkdir()
        self._made.append(group)
        quota = int(self.share * _PERIOD_US)
        if self._is_old:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
            (group / "tasks").write_text(str(pid))
        else:
            (group / "cgroup.type").write_text("threaded")
            (self._folder / "cgroup.procs").write_text(str(pid))
            (self._folder / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            (group / "cgroup.threads").write_text(str(pid))

    def __enter__(self) -> CpuShares:
        """Make the folder of the groups."""
        self._folder.mkdir()
        self._made.append(self._folder)
        if not self._is_old and "cpu" not in (self._folder / "cgroup.controllers").read_text().split():
            self._folder.rmdir()
            raise OSError(f"{self._folder.parent} does not pass the controller cpu on")
        # Before other work on this machine, so that the share is had; together they take no more than their shares.
        (self._folder / ("cpu.shares" if self._is_old else "cpu.weight")).write_text("10000")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove the groups, whose processes must have ended."""
        for group in reversed(self._made):
            for _ in range(50):  # the kernel empties a group a little later than its processes end
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)
