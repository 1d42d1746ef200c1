"""Messages as a command prints them, and as a program silences them; progress where nothing can draw it."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bertline.foundation.progress import ProgressLine, can_draw, layout, progress, say, warn
from terminal import on_terminal


@pytest.fixture
def logger():
    logger = logging.getLogger("bertline")
    before = logger.level, logger.handlers[:]
    yield logger
    logger.setLevel(before[0])
    logger.handlers[:], logger.propagate = before[1], False


def test_a_command_prints_messages_and_marks_warnings(capsys):
    say("100 % of it")
    warn("look here")
    assert capsys.readouterr() == ("100 % of it\n", "warning: look here\n")


def test_a_program_silences_messages_progress_and_bars(logger, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert can_draw()
    logger.setLevel(logging.WARNING)
    say("said")
    assert list(progress([1, 2], description="counted")) == [1, 2]
    warn("look here")
    assert capsys.readouterr() == ("", "warning: look here\n")
    assert not can_draw()


def test_a_program_takes_the_messages_into_its_own_log(logger, capsys, caplog):
    logger.handlers.clear()
    logger.propagate = True
    say("said")
    assert caplog.messages == ["said"]
    assert capsys.readouterr() == ("", "")


def test_progress_is_shown_as_lines_where_rich_is_missing():
    code = (
        "import sys; sys.modules['rich'] = None\n"
        "from bertline.training.progress import TrainingProgress\n"
        "sys.stdout.isatty = lambda: True\n"
        "TrainingProgress('training', first_step=0, num_steps=1, every_s=0, shown=True).show(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "training: step 1 of 1\n", done.stderr


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
