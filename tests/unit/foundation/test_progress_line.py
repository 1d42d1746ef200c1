"""A line of progress at every width of a terminal."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from bertline.foundation.progress import ProgressLine, layout
from terminal import on_terminal

LINE = ProgressLine(
    what="pretraining",
    done=1001,
    total=7000,
    count="step 1,001 of 7,000",
    left="7 min 20 s left",
    notes=("loss 5.383", "accuracy 0.333", "51,234 tokens/s", "41 % utilised", "0.4 % waiting for data", "1.5 GiB"),
)


def columns(width: int, line: ProgressLine = LINE) -> int:
    fitted = layout(line, width)
    return len(fitted.head) + fitted.bar_width + len(fitted.tail)


def test_no_line_is_longer_than_the_terminal_is_wide() -> None:
    assert [width for width in range(1, 240) if columns(width) > width] == []


def test_step_and_time_left_come_first() -> None:
    for width in range(40, 240):
        assert layout(LINE, width).tail.strip().startswith("step 1,001 of 7,000, 7 min 20 s left")
    assert layout(LINE, 30).tail.strip() == "step 1,001 of 7,000"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_there_is_a_bar_at_common_widths(width: int) -> None:
    fitted = layout(LINE, width)
    assert fitted.bar_width >= 10
    assert fitted.head == "pretraining "


def test_notes_are_whole_in_their_order_and_all_there_where_there_is_room() -> None:
    everything = layout(LINE, 200).tail
    assert everything.endswith(", ".join(LINE.notes))
    for width in range(40, 200):
        tail = layout(LINE, width).tail
        assert everything.startswith((tail, f" {tail}"))
        assert tail.strip().split(", ")[-1] in ("7 min 20 s left", *LINE.notes)


def test_wide_characters_take_two_columns() -> None:
    japanese = ProgressLine(what="文書", done=1, total=2, count="1 of 2")
    assert layout(japanese, 5 + 10 + 7).head == "文書 "
    assert layout(japanese, 5 + 10 + 6).head == ""


# The view of a log that grows, as a recipe shows it.
VIEW = """
import sys, time
from pathlib import Path
from contextlib import closing
from bertline.orchestration.launching import LogView
log = Path(sys.argv[1])
log.touch()
with closing(LogView(log)) as view, log.open("a") as handle:
    handle.write("a line of the log\\npretraining: step 1,001 of 7,000, loss 5.383, accuracy 0.333, 7 min 20 s left\\n")
"""


def shown(width: int, log: Path, **environment: str) -> str:
    """What the view shows on a terminal of this width."""
    inherited = {key: value for key, value in os.environ.items() if key != "JPY_PARENT_PID"}
    status, written = on_terminal(
        width, [sys.executable, "-c", VIEW, str(log)], environment={**inherited, **environment}
    )
    assert status == 0, written
    return written


@pytest.mark.parametrize("width", [60, 120])
def test_a_real_terminal_shows_bar_step_and_time_left(tmp_path, width: int) -> None:
    lines = re.split(r"[\r\n]+", shown(width, tmp_path / "log"))
    assert "a line of the log" in lines
    drawn = next(line for line in lines if line.startswith("pretraining"))
    assert re.match(r"pretraining [━╸╺]{10,} step 1,001 of 7,000, 7 min 20 s left", drawn)
    assert len(drawn) <= width
    assert ("accuracy 0.333" in drawn) == (width == 120)


def test_a_notebook_gets_plain_lines(tmp_path) -> None:
    written = shown(80, tmp_path / "log", JPY_PARENT_PID="1")
    assert written.splitlines() == [
        "a line of the log",
        "pretraining: step 1,001 of 7,000, loss 5.383, accuracy 0.333, 7 min 20 s left",
    ]
