"""Signals that stop a command: it ends with one line that names the signal, never with a traceback."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from bertline.foundation.errors import BertlineError, WorkContinues

WORK_STOPPED = "the work was stopped by"
"""A worker's message where it has nothing to say but the signal's name, which follows."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    """Raise `Stopped` in this process when Ctrl-C or TERM arrives; a second signal ends it at once.

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

    for number in _SIGNALS:
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
