"""`make ui`: a server that ends with its command."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ports import free_port

ROOT = Path(__file__).resolve().parents[2]


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


# Each process of a server takes seconds to start: without the option there are four and one that starts them.
@pytest.mark.parametrize(("number", "num_processes"), [(signal.SIGINT, 2), (signal.SIGTERM, 1)])
def test_a_signal_ends_the_server_too_and_is_named_in_one_line(tmp_path, number, num_processes) -> None:
    port = free_port()
    command = [sys.executable, "-m", "bertline", "ui", "--port", str(port)]
    command += ["--workers", str(num_processes)]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:  # a shell's `kill` reaches this process only, not the server
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("(MLflow's plain start page"):
            assert line, process.stderr and process.stderr.read()
        assert answers(port)
        process.send_signal(number)
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 128 + number
    assert errors.splitlines()[-1].startswith(f"stopped by {number.name}")
    assert "Traceback" not in errors
    ended = time.monotonic() + 600
    while answers(port) and time.monotonic() < ended:
        time.sleep(0.1)
    assert not answers(port)
