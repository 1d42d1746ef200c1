"""The state of a run folder: `status.json` for people and recipes, a lock that dies with its process."""

from __future__ import annotations

import dataclasses
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertline.foundation.files import read_json, write_json

ALREADY_RUNNING = 75  # EX_TEMPFAIL of sysexits.h: another process holds the lock


@dataclass(frozen=True, slots=True)
class Ending:
    """A way for a worker to end."""

    exit_status: int


FINISHED, FAILED, STOPPED = Ending(0), Ending(1), Ending(130)


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """What a worker last said of itself. A killed worker leaves `running` behind: believe the lock, not the state."""

    state: Literal["new", "running", "finished", "failed", "stopped"]
    pid: int | None = None
    message: str = ""
    metrics: dict[str, float] = field(default_factory=dict)


def read_status(folder: Path) -> Status:
    """The status of a run folder; `new` where no worker has been."""
    path = folder / "status.json"
    return Status(**read_json(path)) if path.exists() else Status(state="new")


def time_of_status(folder: Path) -> int | None:
    """When the status was last replaced, in nanoseconds of the file system's clock; None where there is none."""
    path = folder / "status.json"
    return path.stat().st_mtime_ns if path.exists() else None


def write_status(folder: Path, status: Status) -> None:
    """Replace the status."""
    write_json(folder / "status.json", dataclasses.asdict(status))


@contextmanager
def hold_lock(folder: Path) -> Iterator[bool]:
    """Take the run folder's lock without waiting; gives whether it was free. The kernel drops it with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def is_locked(folder: Path) -> bool:
    """Whether a worker is at this run folder now."""
    with hold_lock(folder) as free:
        return not free
