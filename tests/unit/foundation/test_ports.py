"""Ports that tests choose for their servers."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import ports
from ports import free_port

pytestmark = pytest.mark.skipif(not ports._own_ports(), reason="not known here which ports the kernel gives to nobody")


def test_a_chosen_port_is_free_and_is_chosen_once() -> None:
    chosen = [free_port() for _ in range(20)]
    assert len(set(chosen)) == 20
    for port in chosen:
        socket.create_server(("127.0.0.1", port)).close()


def test_another_process_does_not_choose_it_nor_one_that_is_taken() -> None:
    chosen, taken, left = (free_port() for _ in range(3))
    ports._guards.pop().close()
    ports._guards.pop().close()
    code = "import ports, sys; ports._own_ports = lambda: [*map(int, sys.argv[1:])]; print(ports.free_port())"
    command = [sys.executable, "-c", code, *map(str, (chosen, taken, left))]
    with socket.create_server(("127.0.0.1", taken)):
        found = subprocess.run(command, cwd=Path(ports.__file__).parent, capture_output=True, text=True, check=True)
    assert int(found.stdout) == left
