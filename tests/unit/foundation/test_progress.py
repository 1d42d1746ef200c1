"""Messages as a command prints them, and as a program silences them; progress where nothing can draw it."""

import logging
import subprocess
import sys

import pytest

from bertline.foundation.progress import can_draw, progress, say, warn


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
