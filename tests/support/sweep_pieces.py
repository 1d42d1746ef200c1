"""Pieces of work for the workers of a sweep; a worker finds them by their names."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


def say_who(bench: Any, argument: Any) -> tuple[int, Any]:
    """The number of the worker, and what it was given."""
    return bench.worker, argument


def die_the_first_time(bench: Any, path: Path) -> str:
    """Kill the worker, unless the file is there already."""
    if not path.exists():
        path.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def wait_for(bench: Any, path: Path) -> str:
    """Wait until a file is there."""
    while not path.exists():
        time.sleep(0.05)
    return "done"


def begin_and_wait_for(bench: Any, paths: tuple[Path, Path]) -> str:
    """Leave the first file, and wait until the second one is there."""
    paths[0].touch()
    return wait_for(bench, paths[1])


def die(bench: Any, argument: Any) -> None:
    """Kill the worker."""
    os.kill(os.getpid(), signal.SIGKILL)


class UnsendableError(Exception):
    """Cannot be made again from its arguments, which is what sending does."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def fail(bench: Any, error: Exception | None) -> None:
    """Raise what was given, or what cannot be sent."""
    raise error if error is not None else UnsendableError("the disk is full", "really")
