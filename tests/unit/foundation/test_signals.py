"""Signals to stop that come at the wrong moment, with small programs in the place of a worker."""

import signal
import subprocess
import sys

import pytest

from found_processes import has_pending

WORKER = """
import subprocess, sys, time
from bertline.foundation.signals import hold_signals, receive_signals
hold_signals()
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
sys.stdin.readline()  # imports
received = []
receive_signals(lambda number, frame: received.append(number))
print("receives", flush=True)
while not received:
    time.sleep(0.02)
print(received, child.poll())
child.kill()
"""


def started():
    """A worker that imports until it reads a line, and its child."""
    command = [sys.executable, "-c", WORKER]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_during_the_imports_is_received_after_them(number):
    process, _ = started()
    process.send_signal(number)
    assert process.communicate("\n", timeout=600)[0].splitlines() == ["receives", f"[{number:d}] None"]
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_what_a_job_script_sends_to_all_processes_kills_no_child(number):
    process, child = started()
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "receives\n"
    subprocess.run(["kill", f"-{number:d}", str(child)], check=True)
    assert has_pending(child, number)
    process.send_signal(number)
    assert process.communicate(timeout=600)[0] == f"[{number:d}] None\n"
