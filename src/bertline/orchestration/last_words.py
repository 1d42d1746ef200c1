"""Channel for a worker's last message when its disk is full and neither status nor log can be written.

The recipe that starts a worker gives it one end of a pipe. The worker's last message goes there, and to its standard
error, which is the log. If the recipe has ended, the write to the pipe fails and is ignored.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

COULD_NOT_WRITE = 74  # EX_IOERR of sysexits.h: the worker ended, and could not write its status
_VARIABLE = "BERTLINE_LAST_WORDS"
# A pipe takes this much in one write, even if nothing reads it.
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Listener:
    """The recipe's end of the pipe."""

    read: int
    write: int

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Environment for the worker, which must be started with `pass_fds=(write,)`."""
        return {**environment, _VARIABLE: str(self.write)}

    def heard(self) -> str:
        """Return the message so far; empty if the worker was killed or wrote none."""
        with suppress(BlockingIOError):
            return os.read(self.read, _MOST_BYTES).decode("utf-8", errors="replace").strip()
        return ""


@contextmanager
def listening() -> Iterator[Listener]:
    """Open a pipe for one worker."""
    read, write = os.pipe()
    # A child process that outlives the worker holds the other end: reading must not wait for it.
    os.set_blocking(read, False)
    try:
        yield Listener(read, write)
    finally:
        os.close(read)
        os.close(write)


def say_last(message: str) -> None:
    """Print and send the reason why this worker ends; never fails."""
    with suppress(OSError, ValueError):
        print(f"error: {message}", file=sys.stderr, flush=True)
    with suppress(OSError, ValueError):
        os.write(int(os.environ.get(_VARIABLE, "")), message.encode()[:_MOST_BYTES])


def give_up_streams() -> None:
    """Discard buffered output that cannot be written, so that the process ends with its own exit status.

    Python itself would exit with 120.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError):
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, stream.fileno())
                os.close(nothing)
