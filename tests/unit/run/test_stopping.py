"""Signals that stop a command, with small programs in the command's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import logging, multiprocessing, sys, time
from pathlib import Path
from bertline.run.stopping import end_as_stopped, stop_on_signals
logging.basicConfig()

def waits(seconds):
    for _ in range(int(seconds * 50)):  # a signal just before the system call of a long sleep is handled at its end
        time.sleep(0.02)

def lives(started):
    started.touch()
    waits(600)

def main():
    stop_on_signals()
    started = Path(sys.argv[1]).with_name("started")
    child = multiprocessing.get_context("fork").Process(target=lives, args=(started,))
    child.start()
    while not started.exists():  # a signal in the middle of its fork is lost
        time.sleep(0.02)
    try:
        Path(sys.argv[1]).touch()
        waits(600)
    finally:
        Path(sys.argv[1]).with_name("ending").touch()
        child.terminate()
        child.join()
        logging.getLogger("sqlalchemy.pool").error("a statement was given up", exc_info=True)
        waits(float(sys.argv[2]))

try:
    main()
except KeyboardInterrupt as error:
    end_as_stopped(error)
"""


def started(tmp_path: Path, *command: str) -> subprocess.Popen[str]:
    """Start Python, and wait until the program says that it is ready."""
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    process = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    wait_for(tmp_path / "ready", process)
    return process


def wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    while not file.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, "stopped by SIGINT (Ctrl-C)"), (signal.SIGTERM, "stopped by SIGTERM")]
)
def test_one_line_names_the_signal_and_no_library_prints_its_traceback(
    tmp_path: Path, number: signal.Signals, said: str
) -> None:
    process = started(tmp_path, "-c", PROGRAM, str(tmp_path / "ready"), "0")
    process.send_signal(number)
    assert process.communicate(timeout=60)[0] == f"{said}\n"
    assert process.returncode == 128 + number


def test_a_second_ctrl_c_ends_a_command_that_is_still_ending(tmp_path: Path) -> None:
    process = started(tmp_path, "-c", PROGRAM, str(tmp_path / "ready"), "600")
    process.send_signal(signal.SIGINT)
    wait_for(tmp_path / "ending", process)  # two signals that wait together would be one
    process.send_signal(signal.SIGTERM)  # which schedulers repeat
    time.sleep(1.1)  # two Ctrl-C within a second are one
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "stopped at once by SIGINT (Ctrl-C)\n"
    assert process.returncode == 130


# Many short sleeps: a signal just before the system call of a long one would only be handled at its end.
SLOW_IMPORT = """
import sys, time
from pathlib import Path
Path(sys.argv[-1]).touch()
for _ in range(30_000):
    time.sleep(0.02)
"""


def test_a_command_ends_in_one_line_while_it_imports(tmp_path: Path) -> None:
    (tmp_path / "hydra.py").write_text(SLOW_IMPORT)  # in the place of what takes a second
    process = started(tmp_path, "-m", "bertline", "plan", str(tmp_path / "ready"))
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "stopped by SIGINT (Ctrl-C)\n"
    assert process.returncode == 130
