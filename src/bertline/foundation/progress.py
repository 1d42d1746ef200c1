"""Progress display: a bar on a terminal, a line every few seconds in a log."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")
_LINE_EVERY_S = 10.0


def say(message: str) -> None:
    """Print one line to standard output and flush it."""
    print(message, flush=True)


def warn(message: str) -> None:
    """Print one warning line to standard error and flush it."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


def can_draw() -> bool:
    """Return whether standard output is a terminal and rich is installed, which a minimal training image may lack."""
    return sys.stdout.isatty() and importlib.util.find_spec("rich") is not None


def progress(items: Iterable[T], *, description: str, total: int | None = None) -> Iterator[T]:
    """Yield items while showing their count, the elapsed time and, if the total is known, the remaining time."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    return _bar(items, description, total) if can_draw() else _lines(items, description, total)


def _bar(items: Iterable[T], description: str, total: int | None) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(file=sys.stdout)) as bar:
        task = bar.add_task(description, total=total)
        for item in items:
            yield item
            bar.advance(task)


def _lines(items: Iterable[T], description: str, total: int | None) -> Iterator[T]:
    started = last = time.monotonic()
    count = 0
    for item in items:
        yield item
        count += 1
        now = time.monotonic()
        if now - last >= _LINE_EVERY_S:
            last = now
            left = f", {(now - started) / count * (total - count):.0f} s left" if total else ""
            say(f"{description}: {count:,}{f' of {total:,}' if total else ''}, {now - started:.0f} s{left}")
    say(f"{description}: {count:,} in {time.monotonic() - started:.1f} s")
