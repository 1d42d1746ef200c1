"""The log of a worker, shown as it grows: its lines, and its progress as one line that is redrawn."""

from __future__ import annotations

import re
from pathlib import Path

from bertline.foundation.files import complete_lines
from bertline.foundation.progress import LiveLine, ProgressLine, can_draw, say

# A progress line of training: "pretraining: step 1,001 of 7,000, loss 5.383, ..., 7 min 20 s left".
_NUMBER = r"\d+(?:,\d{3})*"
_STEPS = re.compile(rf"(?P<what>[^:]+): (?P<count>step (?P<done>{_NUMBER}) of (?P<total>{_NUMBER}))(, (?P<rest>.*))?")
_LEFT = " left"


class LogView:
    """Shows the lines that are appended to a log from now on.

    The worker always writes to its log, never to the terminal: it may outlive the terminal, and a recipe that attaches
    later shows the same lines.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._seen = log.stat().st_size if log.exists() else 0
        self._line: ProgressLine | None = None
        self._drawn = LiveLine(lambda: self._line) if can_draw() else None

    def close(self) -> None:
        """Show the last lines."""
        self.show()
        if self._drawn is not None:
            self._drawn.stop()

    def show(self) -> None:
        """Show the new lines."""
        for line, position in complete_lines(self._log, self._seen):
            self._seen = position
            for part in line.decode("utf-8", errors="replace").splitlines():
                self._show_line(part)

    def _show_line(self, line: str) -> None:
        progress = progress_in(line)
        if self._drawn is None:
            say(line)
        elif progress is None:
            self._drawn.print_above(line)
        else:
            self._line = progress
            self._drawn.start()


def progress_in(line: str) -> ProgressLine | None:
    """Return the progress that a line of a log tells, such as `pretraining: step 5 of 9, loss 5.4, 7 s left`."""
    steps = _STEPS.fullmatch(line)
    if steps is None:
        return None
    notes = [note for note in (steps["rest"] or "").split(", ") if note]
    left = notes.pop() if notes and notes[-1].endswith(_LEFT) else ""
    done, total = (int(steps[key].replace(",", "")) for key in ("done", "total"))
    return ProgressLine(what=steps["what"], done=done, total=total, count=steps["count"], left=left, notes=tuple(notes))
