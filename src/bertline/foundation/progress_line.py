"""One line of progress that fits the terminal: what matters most stays, the rest is shown where there is room."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_SMALLEST_BAR, _LARGEST_BAR = 10, 40


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


@dataclass(frozen=True, slots=True)
class Layout:
    """A line of progress for a terminal of some width: text, a bar, text. A bar of width 0 is left out."""

    head: str
    bar_width: int
    tail: str


def layout(line: ProgressLine, width: int) -> Layout:
    """Fit a line to a terminal; no text is cut, except a count on a terminal that is narrower than the count.

    The count comes first, then the time left, the bar, what is done, and the notes in their order.

    Args:
        line: What to show.
        width: Columns of the terminal.

    Example:
        >>> line = ProgressLine(what="pretraining", done=5, total=9, count="step 5 of 9", left="8 s left")
        >>> layout(line, 24)
        Layout(head='', bar_width=0, tail='step 5 of 9, 8 s left')
        >>> layout(line, 60)
        Layout(head='pretraining ', bar_width=26, tail=' step 5 of 9, 8 s left')
    """
    from rich.cells import cell_len, set_cell_size

    tail = line.count
    if cell_len(tail) > width:
        return Layout("", 0, set_cell_size(tail, width))
    if line.left and cell_len(tail) + cell_len(line.left) + 2 <= width:
        tail = f"{tail}, {line.left}"
    room = width - cell_len(tail) - 1
    if room < _SMALLEST_BAR:
        return Layout("", 0, tail)
    head = f"{line.what} " if line.what and cell_len(line.what) + 1 + _SMALLEST_BAR <= room else ""
    room -= cell_len(head)
    for note in line.notes:
        if room - cell_len(note) - 2 < _SMALLEST_BAR:
            break
        tail = f"{tail}, {note}"
        room -= cell_len(note) + 2
    return Layout(head, min(room, _LARGEST_BAR), f" {tail}")


class LiveLine:
    """Draws a line of progress at the bottom of a terminal, several times a second, until it is stopped.

    Args:
        line: Function that returns the line as it stands; None for nothing yet.
    """

    def __init__(self, line: Callable[[], ProgressLine | None]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._line = line
        self._live = Live(self, console=Console(file=sys.stdout), refresh_per_second=4)

    def start(self) -> None:
        """Begin to draw; a line that is drawn already stays."""
        if not self._live.is_started:
            self._live.start(refresh=True)

    def stop(self) -> None:
        """Draw the line for the last time, and leave it on the terminal."""
        self._live.stop()

    def print_above(self, text: str) -> None:
        """Print a line of text as it is, above the line of progress."""
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield what rich draws, for the width that the terminal has now."""
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        line = self._line()
        if line is None:
            return
        fitted = layout(line, options.max_width)
        yield Text(fitted.head, end="", no_wrap=True)
        if fitted.bar_width:
            yield ProgressBar(total=line.total, completed=line.done, width=fitted.bar_width, pulse=line.total is None)
        yield Text(fitted.tail, end="", no_wrap=True)
