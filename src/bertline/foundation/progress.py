"""Messages and progress: the logger `bertline`, which prints as a command does, and bars on a terminal.

A program that imports bertline changes this as for any logger: `logging.getLogger("bertline").setLevel("WARNING")`
leaves only warnings, and no bars; `handlers.clear()` and `propagate = True` hand all messages to its own handlers.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from bertline.foundation.formats import duration
from bertline.foundation.progress_line import LiveLine, ProgressLine

T = TypeVar("T")
_LINE_EVERY_S = 10.0
# Jupyter sets this for its kernels, which hand it on to what they start; its terminals do not have it.
_OF_NOTEBOOK = "JPY_PARENT_PID"


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
    """Return whether to draw bars: messages go to a terminal that can redraw a line, and rich is installed.

    The terminal that a notebook gives to a `!command` cannot: each redrawn line would stay in its output.
    """
    is_shown = _LOGGER.isEnabledFor(logging.INFO) and sys.stdout.isatty()
    redraws = os.environ.get("TERM") != "dumb" and _OF_NOTEBOOK not in os.environ
    # A minimal image may lack rich.
    return is_shown and redraws and importlib.util.find_spec("rich") is not None


def progress(items: Iterable[T], *, description: str, total: int | None = None) -> Iterator[T]:
    """Yield items while showing their count, the elapsed time and, if the total is known, the remaining time."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    return _bar(items, description, total) if can_draw() else _lines(items, description, total)


def _bar(items: Iterable[T], description: str, total: int | None) -> Iterator[T]:
    started = time.monotonic()
    count = 0

    def line() -> ProgressLine:
        took_s = time.monotonic() - started
        left = f"{duration(took_s / count * (total - count))} left" if total and 0 < count < total else ""
        return ProgressLine(
            what=description,
            done=count,
            total=total,
            count=f"{count:,}{f' of {total:,}' if total else ''}",
            left=left,
            notes=(duration(took_s),),
        )

    drawn = LiveLine(line)
    drawn.start()
    try:
        for item in items:
            yield item
            count += 1
    finally:
        drawn.stop()


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
