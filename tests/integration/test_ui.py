"""`make ui`: a server that ends with its command."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

from ports import free_port
from servers import wait_until


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_too_and_is_named_in_one_line(tmp_path, number) -> None:
    port = free_port()
    command = [sys.executable, "-m", "bertline", "ui", f"port={port}"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:  # a shell's `kill` reaches this process only, not the server
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("(MLflow's plain start page"):
            assert line, process.stderr and process.stderr.read()
        socket.create_connection(("127.0.0.1", port)).close()
        process.send_signal(number)
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 128 + number
    assert errors.splitlines()[-1].startswith(f"stopped by {number.name}")
    assert "Traceback" not in errors
    with pytest.raises(ConnectionRefusedError):
        wait_until(lambda: socket.create_connection(("127.0.0.1", port)).close())
