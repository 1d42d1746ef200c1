"""Signals to stop that come at the wrong moment, with small programs in the place of a worker."""

import signal
import subprocess
import sys
import time

import pytest

WORKER = """
import subprocess, sys, time
from bertline.foundation.signals import hold_signals, receive_signals
hold_signals()
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
time.sleep(float(sys.argv[1]))  # imports
received = []
receive_signals(lambda number, frame: received.append(number))
print("receives", flush=True)
while not received:
    time.sleep(0.02)
print(received, child.poll())
child.kill()
"""


def started(imports_s):
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(imports_s)], stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_during_the_imports_is_received_after_them(number):
    process, _ = started(0.5)
    process.send_signal(number)
    assert process.communicate(timeout=20)[0].splitlines() == ["receives", f"[{number:d}] None"]
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_what_a_job_script_sends_to_all_processes_kills_no_child(number):
    process, child = started(0)
    assert process.stdout.readline() == "receives\n"
    subprocess.run(["kill", f"-{number:d}", str(child)], check=True)
    time.sleep(0.1)
    process.send_signal(number)
    assert process.communicate(timeout=20)[0] == f"[{number:d}] None\n"
