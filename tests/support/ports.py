"""Ports of loopback for the servers of tests: nobody else takes a port before its server listens."""

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

    Until the server listens, the kernel may give its own ports to others: to another test, or to any connection. So on
    Linux the port is below those that the kernel gives, and other tests do not choose it until this process ends.
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
