"""The servers that tests start: they end with the process that started them, also when it is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import found_processes
import servers
from ports import free_port

OWNS = """
import sys, time
import servers
with getattr(servers, sys.argv[1])() as server:
    print(server.port, server.variable, server.leaves(), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("server", [servers.S3, servers.PostgreSQL])
def test_a_server_ends_with_its_process_when_that_is_killed(server: Callable[[], servers.Server]) -> None:
    server()  # skips the test where it is not installed
    environment = {**os.environ, "PYTHONPATH": str(Path(servers.__file__).parent)}
    command = [sys.executable, "-c", OWNS, server.__name__]
    owner = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    port, variable, folder = owner.stdout.readline().split()
    assert servers.answers(int(port))
    assert found_processes.having(variable)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    servers.wait_until(lambda: not found_processes.having(variable), timeout_s=600)
    servers.wait_until(lambda: not servers.answers(int(port)), timeout_s=600)
    servers.wait_until(lambda: folder == "None" or not Path(folder).exists(), timeout_s=600)


class Files(servers.Server):
    """Python's own server, which starts at once."""

    name = "the file server"

    def __init__(self) -> None:
        self.port = free_port()

    def command(self) -> list[str]:
        return [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(self.port)]


def test_a_server_that_is_stopped_leaves_nobody_who_watches_it() -> None:
    with Files() as server:
        assert server._watcher is not None
        watcher, variable = server._watcher, server.variable
        assert watcher.poll() is None
        server.restart()
        assert watcher.poll() is not None
        assert not found_processes.having(variable)
        watcher, variable = server._watcher, server.variable
        assert len(found_processes.having(variable)) == 1
    assert watcher.poll() is not None
    assert not found_processes.having(variable)
