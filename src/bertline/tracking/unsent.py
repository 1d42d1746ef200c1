"""Sessions that a server did not accept, kept under `runs/unsent` and sent by the next stage that reaches it.

A session is the sequence of one process' calls to its tracker. All calls are kept, not only failed ones: each call is
safe to repeat (see `tracker`), and a server that hung may have processed any of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import lock_file, read_json, write_json

UNSENT = Path("runs/unsent")
_FORMAT_VERSION = 1


class Session:
    """Calls of one process, as plain data."""

    def __init__(self, opening: Mapping[str, Any]) -> None:
        self._opening = opening
        self._calls: list[dict[str, Any]] = []

    def note(self, call: str, stage: int | None = None, **arguments: Any) -> None:
        """Add a call.

        Args:
            call: Name of a method of the tracker or, with `stage`, of a stage's run.
            stage: Index of the stage in the session, from 0; None for calls of the tracker.
            arguments: Arguments of the call, kept as plain data. Paths of artifacts have a mark of their state
                (`marked`).
        """
        plain = json.loads(json.dumps(arguments, default=str))
        self._calls.append({"call": call, "stage": stage, "at_s": time.time(), "arguments": plain})

    def keep(self, place: Path) -> Path:
        """Write the session to a folder from `place_of` and return the file."""
        path = place / f"{time.time_ns()}-{os.getpid()}.json"
        content = {"format_version": _FORMAT_VERSION, "opening": self._opening, "calls": self._calls}
        write_json(path, json.loads(json.dumps(content, default=str)))
        return path


def place_of(uri: str, experiment_name: str) -> Path:
    """Return the folder for sessions of a server and experiment; its name is a hash, since addresses may be secret."""
    return UNSENT / hashlib.sha256(f"{uri}\n{experiment_name}".encode()).hexdigest()[:12]


def kept_sessions(place: Path) -> list[Path]:
    """Return the files of kept sessions, oldest first."""
    return sorted(place.glob("*.json"))


@contextmanager
def claimed(path: Path) -> Iterator[dict[str, Any] | None]:
    """Lock and read a kept session; delete it if the block ends without an error.

    Yields None if another process is sending it or has sent it, or if the file cannot be read.
    """
    with path.with_suffix(".lock").open("w") as lock:
        content: Any = {}
        with suppress(OSError, BertlineError):
            if lock_file(lock) is not False:
                content = read_json(path)
        if content.get("format_version") != _FORMAT_VERSION:
            yield None
            return
        yield content
        path.unlink(missing_ok=True)
        path.with_suffix(".lock").unlink(missing_ok=True)


def marked(path: Path) -> dict[str, Any]:
    """Return a path with a mark of its current state, so that a later file with the same name is not sent instead."""
    return {"path": str(path), "mark": _mark(path)}


def unmarked(kept: Mapping[str, Any]) -> Path | None:
    """Return the path; None if it is missing or has changed."""
    path = Path(kept["path"])
    return path if kept["mark"] is not None and _mark(path) == kept["mark"] else None


def _mark(path: Path) -> str | None:
    if not path.exists():
        return None
    try:
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        stats = [file.stat() for file in files]
    except FileNotFoundError:  # it is being removed
        return None
    return f"{len(stats)}/{sum(stat.st_size for stat in stats)}/{max((stat.st_mtime_ns for stat in stats), default=0)}"
