"""Which machine this is, and whether a process of it has ended."""

from __future__ import annotations

import os
import socket
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PIDS = Path("/proc/self/ns/pid")


def machine() -> str:
    """Return an identity of this machine since its last start; its name where the system gives no other."""
    try:
        return _BOOT.read_text(encoding="ascii").strip() or socket.gethostname()
    except OSError:
        return socket.gethostname()


def pid_namespace() -> str:
    """Return the namespace in which process ids are meant, since a container has its own; empty without namespaces."""
    try:
        return str(_PIDS.readlink())
    except OSError:
        return ""


def start_of(pid: int) -> str:
    """Return when a process started, in ticks since its machine did; empty where the system does not tell.

    Together with the id it names a process for good: the system gives an id to another process later. Unlike a time of
    the day it stays the same when the clock is set.
    """
    return _state_and_start(pid)[1]


def has_ended(pid: int, *, start: str = "") -> bool:
    """Return whether a process of this machine and this namespace has ended.

    A process that has ended and whose parent does not know it yet (a zombie) works no more, so it counts as ended.

    Args:
        pid: Its id.
        start: What `start_of` said of it; without it, a later process with the same id is taken for it.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # another user's
    state, started = _state_and_start(pid)
    return state in ("Z", "X") or ("" not in (start, started) and start != started)


def _state_and_start(pid: int) -> tuple[str, str]:
    """Return the fields `state` and `starttime` of proc(5); both empty where there are none."""
    try:
        # The name before them, in brackets, may have spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
