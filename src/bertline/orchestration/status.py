"""State of a run folder: `status.json` for people and recipes, and which recipes have it open."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertline.foundation.files import lock_file, read_json, sha256_of_path, write_json
from bertline.orchestration.ownership import age_s, is_locked

_OPEN = "open"
_WATCHED = "watched"
_WATCH_GRACE_S = 60.0
RESULT_NAME = "result"
"""Name of the result's folder inside a run folder."""
TO_BE_REQUEUED = 85
"""Exit status of work that was asked to stop by a scheduler, saved, and can be resumed."""
EXIT_STATUS = {"finished": 0, "failed": 1, "stopped": 130}
"""Exit status of a worker by the state in which it ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """Last status that a worker wrote. A killed worker leaves `running` behind, so trust the lock, not the state."""

    state: Literal["new", "running", "finished", "failed", "stopped"]
    pid: int | None = None
    message: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    result_sha256: str | None = None
    """SHA-256 of the result folder of a finished run; None in the records of earlier versions."""
    inputs_changed: bool = False
    """Whether the inputs changed during a failed run, which must not be resumed then."""
    started_s: float | None = None
    """When the worker began, in seconds since the epoch, and earlier by what it had worked before it was stopped or
    requeued; None in the records of earlier versions."""
    ended_s: float | None = None
    """When its work ended; None while it runs."""

    @property
    def work_s(self) -> float | None:
        """Seconds from the start of the worker to the end of its work; None if that is not recorded."""
        if self.started_s is None or self.ended_s is None:
            return None
        return max(0.0, self.ended_s - self.started_s)  # the clock may have been set back


def read_status(folder: Path) -> Status:
    """Return the status of a run folder; `new` if no worker has run in it."""
    path = folder / "status.json"
    return Status(**read_json(path)) if path.exists() else Status(state="new")


def problem_with_result(folder: Path, status: Status) -> str | None:
    """Return why the result of a run marked as finished cannot be trusted; None if it matches the record."""
    result = folder / RESULT_NAME
    if not result.is_dir():
        return f"{result} is missing"
    if status.result_sha256 not in (None, sha256_of_path(result)):
        return f"{result} is not what was written (its SHA-256 differs from the one in {folder / 'status.json'})"
    return None


def time_of_status(folder: Path) -> int | None:
    """Return when the status was last replaced, in nanoseconds of the file system's clock; None if there is none."""
    try:
        return (folder / "status.json").stat().st_mtime_ns
    except FileNotFoundError:
        return None


def write_status(folder: Path, status: Status) -> None:
    """Replace the status."""
    write_json(folder / "status.json", dataclasses.asdict(status))


@contextmanager
def mark_open(folder: Path) -> Iterator[None]:
    """Mark a run folder as opened by a recipe; several may open it. The mark is released when the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _OPEN).open("a+") as handle:
        lock_file(handle, wait=True, shared=True)
        yield


def mark_watched(folder: Path) -> None:
    """Say to the other machines that a recipe waits for this run's end: their locks may not show that it is open."""
    with suppress(OSError):
        (folder / _WATCHED).touch()


def is_watched(folder: Path) -> bool:
    """Return whether a recipe of any machine has marked the run within a minute."""
    age = age_s(folder / _WATCHED)
    return age is not None and age < _WATCH_GRACE_S


@contextmanager
def hold_unopened(folder: Path) -> Iterator[bool]:
    """Yield whether no recipe has a run folder open; if none has, one that comes waits until the block ends."""
    with (folder / _OPEN).open("a") as handle:
        free = lock_file(handle) is not False
        for _ in range(2):  # `_is_open` holds the mark for a moment, too
            if not free:
                time.sleep(0.1)
                free = lock_file(handle) is not False
        yield free and not is_watched(folder)


def open_folders(runs: Path) -> list[Path]:
    """Return the run folders (`runs/STAGE/FINGERPRINT`) that a recipe has open, or whose worker is running."""
    return sorted(folder for folder in runs.glob("*/*") if _is_open(folder))


def _is_open(folder: Path) -> bool:
    if (folder / _OPEN).exists():
        with (folder / _OPEN).open("a") as handle:
            if lock_file(handle) is False:
                return True
    # Trying the lock would block a worker that starts at that moment, so it is tried only if the status is `running`.
    return (folder / "status.json").exists() and read_status(folder).state == "running" and is_locked(folder)
