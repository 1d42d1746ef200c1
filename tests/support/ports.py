"""Ports of loopback for servers that are started with one, which nobody takes before they listen."""

from __future__ import annotations

import random
import socket
import sys
from contextlib import suppress
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_NUM_PORTS = 12_000
_guards: list[socket.socket] = []
"""What keeps the chosen ports from other processes of tests, as long as this one lives."""


def free_port() -> int:
    """A port that nothing listens on, and that no other test chooses.

    A port that the kernel gives is the next one's too, until the server listens: another test may get it, or any
    connection to a server. On Linux it is below those that the kernel gives, and belongs to this process.
    """
    for port in _own_ports():
        guard, probe = socket.socket(socket.AF_UNIX), socket.socket()
        with probe, suppress(OSError):  # another process has chosen it, or something listens
            guard.bind(f"\0bertline-tests-port-{port}")
            probe.bind(("127.0.0.1", port))
            _guards.append(guard)
            return port
        guard.close()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _own_ports() -> list[int]:
    """Ports that the kernel gives to nobody, in random order; none where it does not say which these are."""
    if sys.platform != "linux" or not _RANGE.exists():
        return []
    first_given = int(_RANGE.read_text().split()[0])
    ports = range(max(10_000, first_given - _NUM_PORTS), first_given)
    return random.SystemRandom().sample(ports, len(ports))
