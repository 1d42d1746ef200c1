"""What the processes of one test session make once and share."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest


def made(sessions: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a path that the first process to come has made by calling `make` on it; others wait for it.

    If that fails, the next process tries on another path.
    """
    base = sessions.getbasetemp()  # workers of pytest-xdist have a folder each below a common one
    shared = base.parent if base.name.startswith("popen-") else base
    note = shared / f"{name}.made"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            attempt = sum(1 for _ in shared.glob(f"{name}-*"))
            path = shared / f"{name}-{attempt}"
            make(path)
            note.write_text(str(path))
    return Path(note.read_text())
