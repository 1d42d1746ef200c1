"""Signals that stop a command: it ends with one line that names the signal, never with a traceback."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from bertline.foundation.errors import BertlineError, WorkContinues
from bertline.foundation.signals import STOP_SIGNALS

WORK_STOPPED = "the work was stopped by"
"""A worker's message where it has nothing to say but the signal's name, which follows."""


class Stopped(KeyboardInterrupt):
    """A signal stopped this command; the message says which one, and what continues or how to resume.

    Args:
        message: The message, without "stopped".
        number: The signal.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class Detached(Stopped, WorkContinues):
    """A signal stopped this command, which watched work that another process continues."""


def named(number: int) -> str:
    """Return the name of a signal, as people know it.

    Example:
        >>> named(2), named(15)
        ('SIGINT (Ctrl-C)', 'SIGTERM')
    """
    name = signal.Signals(number).name
    return f"{name} (Ctrl-C)" if number == signal.SIGINT else name


def stop_on_signals() -> None:
    """Raise `Stopped` in this process when one of `STOP_SIGNALS` arrives; a second signal ends it at once.

    Processes that are forked from this one end without a word. Python can only handle signals in the main thread; in
    other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    owner = os.getpid()
    stopped = False

    def stop(number: int, frame: Any) -> None:
        nonlocal stopped
        if os.getpid() != owner:
            os._exit(128 + number)
        if stopped:
            print(f"stopped at once by {named(number)}", file=sys.stderr, flush=True)
            os._exit(128 + number)
        stopped = True
        silence_other_loggers()
        raise Stopped(f"by {named(number)}", number)

    for number in STOP_SIGNALS:
        signal.signal(number, stop)


def silence_other_loggers() -> None:
    """Print no more messages of other libraries: SQLAlchemy logs a traceback for a statement that is given up."""
    logging.getLogger().handlers[:] = [logging.NullHandler()]


def in_one_line(run: Callable[[], int | None]) -> NoReturn:
    """Run a command and exit with its status; errors of the user and signals end it with one line."""
    stop_on_signals()
    try:
        sys.exit(run())
    except KeyboardInterrupt as error:
        end_as_stopped(error)
    except BertlineError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(1)


def end_as_stopped(error: KeyboardInterrupt) -> NoReturn:
    """Print what stopped this command, in one line, and exit as shells expect it: 128 + the signal."""
    number = error.number if isinstance(error, Stopped) else signal.SIGINT
    print(f"stopped {str(error) or f'by {named(number)}'}", file=sys.stderr, flush=True)
    sys.exit(128 + number)


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
