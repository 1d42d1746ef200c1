"""Messages as a command prints them, and as a program silences them."""

from __future__ import annotations

import logging
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
