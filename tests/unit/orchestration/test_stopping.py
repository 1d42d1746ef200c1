"""Signals that stop a command, with small programs in the command's place."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import logging, multiprocessing, sys, time
from pathlib import Path
from bertline.orchestration.stopping import end_as_stopped, stop_on_signals
logging.basicConfig()

def waits(seconds):
    time.sleep(seconds)

def main():
    stop_on_signals()
    child = multiprocessing.get_context("fork").Process(target=waits, args=(30,))
    child.start()
    try:
        Path(sys.argv[1]).touch()
        time.sleep(30)
    finally:
        child.terminate()
        child.join()
        logging.getLogger("sqlalchemy.pool").error("a statement was given up", exc_info=True)
        time.sleep(float(sys.argv[2]))

try:
    main()
except KeyboardInterrupt as error:
    end_as_stopped(error)
"""


def started(tmp_path: Path, *, ends_for_s: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "ready"), str(ends_for_s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while not (tmp_path / "ready").exists():
        time.sleep(0.02)
    return process


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, "stopped by SIGINT (Ctrl-C)"), (signal.SIGTERM, "stopped by SIGTERM")]
)
def test_one_line_names_the_signal_and_no_library_prints_its_traceback(
    tmp_path: Path, number: signal.Signals, said: str
) -> None:
    process = started(tmp_path, ends_for_s=0)
    process.send_signal(number)
    assert process.communicate(timeout=30)[0] == f"{said}\n"
    assert process.returncode == 128 + number


def test_a_second_signal_ends_a_command_that_is_still_ending(tmp_path: Path) -> None:
    process = started(tmp_path, ends_for_s=30)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10)[0] == "stopped at once by SIGINT (Ctrl-C)\n"
    assert process.returncode == 130
