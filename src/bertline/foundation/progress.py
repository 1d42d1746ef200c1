"""Messages and progress: the logger `bertline`, which prints as a command does, and bars on a terminal.

A program that imports bertline changes this as for any logger: `logging.getLogger("bertline").setLevel("WARNING")`
leaves only warnings, and no bars; `handlers.clear()` and `propagate = True` hand all messages to its own handlers.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from bertline.foundation.formats import duration, printable

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_Any = TypeVar("_Any")
_LINE_EVERY_S = 10.0
# Jupyter sets this for its kernels, which hand it on to what they start; its terminals do not have
# it.
_OF_NOTEBOOK = "JPY_PARENT_PID"


class _CommandLine(logging.Handler):
    """Prints messages to standard output, and warnings, marked as such, to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # a closed terminal or pipe must not end the work
            message = printable(self.format(record))
            if record.levelno < logging.WARNING:
                print(message, flush=True)
            else:
                print(f"warning: {message}", file=sys.stderr, flush=True)


_LOGGER = logging.getLogger("bertline")
_LOGGER.setLevel(logging.INFO)
_LOGGER.addHandler(_CommandLine())
_LOGGER.propagate = False  # else a root handler, such as Hydra's, would print everything again
say = _LOGGER.info
warn = _LOGGER.warning


def can_draw() -> bool:
    """Return whether to draw bars: messages go to a terminal that can redraw a line.

    The terminal that a notebook gives to a `!command` cannot: each redrawn line would stay in its output.
    """
    is_shown = _LOGGER.isEnabledFor(logging.INFO) and sys.stdout.isatty()
    return is_shown and os.environ.get("TERM") != "dumb" and _OF_NOTEBOOK not in os.environ


def progress(
    items: Iterable[_Any], *, description: str, total: int | None = None, is_brief: bool = False
) -> Iterator[_Any]:
    """Yield items while showing their count, the elapsed time and, if the total is known, the remaining time.

    `is_brief`: only lines, and none of what ends within `_LINE_EVERY_S`; several processes may show theirs at once.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    started = time.monotonic()
    count = 0

    def line() -> ProgressLine:
        took_s = time.monotonic() - started
        left = f"{duration(took_s / count * (total - count))} left" if total and 0 < count < total else ""
        counted = f"{count:,}{f' of {total:,}' if total else ''}"
        return ProgressLine(
            what=description, done=count, total=total, count=counted, left=left, notes=(duration(took_s),)
        )

    with ShownLine(line, every_s=_LINE_EVERY_S, draws=not is_brief) as shown:
        for item in items:
            yield item
            count += 1
            shown.log()
        took_s = time.monotonic() - started
        if not shown.is_drawn and not (is_brief and took_s < _LINE_EVERY_S):
            say(f"{description}: {count:,} in {took_s:.1f} s")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressLine:
    """What a line of progress says."""

    what: str
    done: int
    total: int | None
    """None if it is not known; the bar then only shows that something happens."""
    count: str
    """The count as text, such as "step 1,001 of 7,000"."""
    left: str = ""
    """The time left as text; empty if it is not known."""
    notes: tuple[str, ...] = ()
    """The rest, most important first."""

    def __str__(self) -> str:
        return f"{self.what}: {', '.join(filter(None, (self.count, *self.notes, self.left)))}"


class ShownLine:
    """Shows a line of progress within a block: at the bottom of a terminal several times a second, or now and then in a
    log.

    Args:
        every_s: Seconds between lines in a log.
        draws: Whether a bar is wanted; several processes may show theirs at once.
    """

    def __init__(self, line: Callable[[], ProgressLine], *, every_s: float, draws: bool = True) -> None:
        self._line, self._every_s, self._logged = line, every_s, time.monotonic()
        self._live: Live | None = None
        if draws and can_draw():
            import rich.console
            import rich.live

            console = rich.console.Console(file=sys.stdout)
            self._live = rich.live.Live(self, console=console, refresh_per_second=4)

    @property
    def is_drawn(self) -> bool:
        """Whether a terminal shows a bar; nothing is logged then."""
        return self._live is not None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()

    def is_due(self) -> bool:
        """Return whether the log shall have the next line."""
        return self._live is None and time.monotonic() - self._logged >= self._every_s

    def log(self, *, at_once: bool = False) -> None:
        """Log the line if one is due, or at once, where none is drawn."""
        if self.is_due() or (at_once and self._live is None):
            self._logged = time.monotonic()
            say(str(self._line()))

    def __rich__(self) -> Table:
        """Return what rich draws: the bar with its counts, and as many notes as the line has room for."""
        from rich.progress_bar import ProgressBar
        from rich.table import Column, Table
        from rich.text import Text

        line = self._line()
        counts = ", ".join(filter(None, (line.count, line.left, *line.notes)))
        bar = ProgressBar(total=line.total, completed=line.done, width=20, pulse=line.total is None)
        # The last column gives way.
        drawn = Table.grid(Column(no_wrap=True), Column(no_wrap=True), Column(), padding=(0, 1))
        drawn.add_row(line.what, bar, Text(counts, no_wrap=True, overflow="ellipsis"))
        return drawn
