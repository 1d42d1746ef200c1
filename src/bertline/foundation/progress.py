"""Messages and progress: the logger `bertline`, which prints as a command does, and bars on a terminal.

A program that imports bertline changes this as for any logger: `logging.getLogger("bertline").setLevel("WARNING")`
leaves only warnings, and no bars; `handlers.clear()` and `propagate = True` hand all messages to its own handlers.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")
_LINE_EVERY_S = 10.0


class _CommandLine(logging.Handler):
    """Prints messages to standard output, and warnings, marked as such, to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            print(self.format(record), flush=True)
        else:
            print(f"warning: {self.format(record)}", file=sys.stderr, flush=True)


_LOGGER = logging.getLogger("bertline")
_LOGGER.setLevel(logging.INFO)
_LOGGER.addHandler(_CommandLine())
_LOGGER.propagate = False  # else a root handler, such as Hydra's, would print everything again
say = _LOGGER.info
warn = _LOGGER.warning


def can_draw() -> bool:
    """Return whether to draw bars: messages go to a terminal, and rich is installed, which a minimal image may lack."""
    is_shown = _LOGGER.isEnabledFor(logging.INFO) and sys.stdout.isatty()
    return is_shown and importlib.util.find_spec("rich") is not None


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
