"""What a server did not take: kept under `runs/unsent` and told again by the next stage that reaches it.

A session is one process' calls to its tracker, in order. All of them are kept, not only those that failed: each is safe
to repeat (see `tracker`), and a server that hung may have taken any part of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import read_json, write_json

UNSENT = Path("runs/unsent")
_FORMAT_VERSION = 1


class Session:
    """The calls of one process, as plain data."""

    def __init__(self, opening: Mapping[str, Any]) -> None:
        self._opening = dict(opening)
        self._calls: list[dict[str, Any]] = []

    def note(self, call: str, stage: int | None = None, **arguments: Any) -> None:
        """Add a call.

        Args:
            call: Name of a method of the tracker or, with `stage`, of a stage's run.
            stage: Which stage of the session, from 0.
            arguments: Plain data. Paths are kept with a mark of their state (`marked`).
        """
        self._calls.append({"call": call, "stage": stage, "at_s": time.time(), "arguments": arguments})

    def keep(self, place: Path) -> Path:
        """Write the session into a folder of `place_of`; returns the file."""
        path = place / f"{time.time_ns()}-{os.getpid()}.json"
        content = {"format_version": _FORMAT_VERSION, "opening": self._opening, "calls": self._calls}
        write_json(path, json.loads(json.dumps(content, default=str)))
        return path


def place_of(uri: str, experiment_name: str) -> Path:
    """The folder for sessions of one server and experiment; the address, which may be secret, is not in its name."""
    return UNSENT / hashlib.sha256(f"{uri}\n{experiment_name}".encode()).hexdigest()[:12]


def kept_sessions(place: Path) -> list[Path]:
    """The files of kept sessions, oldest first."""
    return sorted(place.glob("*.json"))


@contextmanager
def claimed(path: Path) -> Iterator[dict[str, Any] | None]:
    """A kept session to send, which is deleted when the block ends without an error.

    None where another process is at it, or has sent it, or where the file cannot be read.
    """
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = read_json(path)
        except (OSError, BertlineError):
            yield None
            return
        if content.get("format_version") != _FORMAT_VERSION:
            yield None
            return
        yield content
        path.unlink(missing_ok=True)
        path.with_suffix(".lock").unlink(missing_ok=True)


def marked(path: Path) -> dict[str, Any]:
    """A path with a mark of its present content, so that a later file of that name is not sent in its place."""
    return {"path": str(path), "mark": _mark(path)}


def unmarked(kept: Mapping[str, Any]) -> Path | None:
    """The path, or None where it is gone or has other content now."""
    path = Path(kept["path"])
    return path if path.exists() and _mark(path) == kept["mark"] else None


def _mark(path: Path) -> str | None:
    if not path.exists():
        return None
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    stats = [file.stat() for file in files]
    return f"{len(stats)}/{sum(stat.st_size for stat in stats)}/{max((stat.st_mtime_ns for stat in stats), default=0)}"
