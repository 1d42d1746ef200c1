"""Ports of loopback for the servers of tests: nobody else takes a port before its server listens."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

_PORTS = range(20_000, 32_000)
"""Below those that Linux gives to whoever asks for none in particular."""
_guards: list[socket.socket] = []
"""What keeps the chosen ports from other processes of tests, as long as this one lives."""


def free_port() -> int:
    """A port that nothing listens on, and that no other test chooses until this process ends."""
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        guard = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe, suppress(OSError):  # another process has chosen it, or something listens
            guard.bind(f"\0bertline-tests-port-{port}")
            probe.bind(("127.0.0.1", port))
            _guards.append(guard)
            return port
        guard.close()
    raise RuntimeError("all ports for tests are taken")
