"""Programs in a real terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path


def on_terminal(
    width: int, command: Sequence[str], *, environment: Mapping[str, str], folder: Path | None = None
) -> tuple[int, str]:
    """Run a command in a terminal of this width; return its exit status and what it wrote there, without colours."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    inherited = {key: value for key, value in environment.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(command, cwd=folder, stdout=its, stderr=its, env={**inherited, "TERM": "xterm"})
    os.close(its)
    written = b""
    while True:
        try:
            read = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        written += read
    os.close(ours)
    return process.wait(), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.decode())
