"""View of a worker's growing log: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from bertline.foundation.progress import can_draw, say

# A progress line of training: "pretraining: step 1,001 of 7,000, loss 5.383, ..., 7 min 20 s left".
_STEPS = re.compile(r"(?P<what>[^:]+): step (?P<done>[\d,]+) of (?P<total>[\d,]+)(, )?(?P<note>.*)")


class LogView:
    """Shows the lines that are appended to a log from now on.

    The worker always writes to its log, never to the terminal: it may outlive the terminal, and a recipe that attaches
    later shows the same lines.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._seen = log.stat().st_size if log.exists() else 0
        self._bar = _bar() if can_draw() else None
        self._task = None if self._bar is None else self._bar.add_task("", total=None, visible=False, count="", note="")

    def __enter__(self) -> LogView:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.show()
        if self._bar is not None:
            self._bar.stop()

    def show(self) -> None:
        """Show the new lines."""
        if not self._log.exists():
            return
        with self._log.open("rb") as handle:
            handle.seek(self._seen)
            new = handle.read()
        # Only complete lines, so that a multi-byte character is never split.
        whole = new[: new.rfind(b"\n") + 1]
        self._seen += len(whole)
        for line in whole.decode("utf-8", errors="replace").splitlines():
            self._show_line(line)

    def _show_line(self, line: str) -> None:
        steps = _STEPS.fullmatch(line)
        if self._bar is None or self._task is None:
            say(line)
        elif steps is None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            done, total = (int(steps[key].replace(",", "")) for key in ("done", "total"))
            self._bar.update(
                self._task,
                description=steps["what"],
                completed=done,
                total=total,
                visible=True,
                count=f"{steps['done']} of {steps['total']}",
                note=steps["note"],
            )


def _bar() -> Progress:
    # The count has priority over the note: on a narrow terminal the bar and the note shrink.
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TextColumn("{task.fields[count]}", justify="right"),
        TextColumn("{task.fields[note]}"),
    )
    return Progress(*columns, console=Console(file=sys.stdout, soft_wrap=True))
