"""Messages as a command prints them, and as a program silences them; progress where nothing can draw it."""

from __future__ import annotations

import logging
import os
import re
import sys

import pytest

from bertline.foundation.progress import can_draw, progress, say, warn
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


VIEW = """
from bertline.foundation.progress import say
from bertline.training.progress import TrainingProgress
score = ("val/mlm_accuracy", "accuracy")
with TrainingProgress("pretraining", first_step=0, num_steps=7000, every_s=0, shown=True, score=score) as progress:
    say("a line of the log")
    progress.note({"train/loss": 5.383, "val/mlm_accuracy": 0.333})
    progress.show(1001, left_s=440)
"""


def shown(width: int, **environment: str) -> str:
    """What the view shows on a terminal of this width."""
    inherited = {key: value for key, value in os.environ.items() if key != "JPY_PARENT_PID"}
    status, written = on_terminal(width, [sys.executable, "-c", VIEW], environment={**inherited, **environment})
    assert status == 0, written
    return written


@pytest.mark.parametrize("width", [80, 140])
def test_a_real_terminal_shows_bar_step_and_time_left(width: int) -> None:
    lines = re.split(r"[\r\n]+", shown(width))
    assert "a line of the log" in lines
    drawn = [line for line in lines if line.startswith("pretraining")][-1]
    assert re.match(r"pretraining [━╸╺]{10,} step 1,001 of 7,000, 7 min 20 s left", drawn)
    assert len(drawn) <= width
    assert ("accuracy 0.333" in drawn) == (width == 140)
