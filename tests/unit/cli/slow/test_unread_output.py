"""Output that nobody reads to its end, as in `bertline --help | head`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["finetune", "--help"], ["configure", "model=mini"], ["plan"]])
def test_a_reader_that_has_seen_enough_ends_a_command_without_a_word(arguments: list[str], buffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command, environment = [sys.executable, "-m", "bertline", *arguments], {**os.environ, "PYTHONUNBUFFERED": buffered}
    with os.fdopen(write) as closed:
        done = subprocess.run(command, cwd=ROOT, stdout=closed, stderr=subprocess.PIPE, env=environment, check=False)
    assert done.returncode in (0, 128 + signal.SIGPIPE)
    assert done.stderr == b""
