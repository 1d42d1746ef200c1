"""Signals that stop a command: it ends with one line that names the signal, never with a traceback."""

import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from bertline.foundation.errors import BertlineError, MachineError
from bertline.foundation.files import plain_error
from bertline.foundation.formats import printable
from bertline.foundation.signals import RECEIVED, receive_signals


class Stopped(KeyboardInterrupt):
    """A signal stopped this command; the message, after the word "stopped", says which one and how to resume."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


def named(number: int) -> str:
    """Return the name of a signal, as people know it."""
    name = signal.Signals(number).name
    return f"{name} (Ctrl-C)" if number == signal.SIGINT else name


def stop_on_signals() -> None:
    """Raise `Stopped` in the main thread when the first signal to stop arrives; a second Ctrl-C ends the process.

    Other repetitions change nothing: schedulers repeat TERM, which must not interrupt the writing of a status.
    Processes that are forked from this one end without a word. In other threads than the main one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    owner = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() != owner:
            os._exit(128 + number)
        is_first = RECEIVED.first is None
        if RECEIVED.note(number):
            print(f"stopped at once by {named(number)}", file=sys.stderr, flush=True)
            os._exit(128 + number)
        if is_first:
            # SQLAlchemy would log a traceback for a statement that is given up.
            logging.getLogger().handlers[:] = [logging.NullHandler()]
            raise Stopped(f"by {named(number)}", number)

    receive_signals(stop)


def in_one_line(run: Callable[[], int | None]) -> NoReturn:
    """Run a command and exit with its status; errors of the user and signals end it with one line."""
    stop_on_signals()
    with errors_in_one_line():
        require_home()
        status = run()
        sys.stdout.flush()
        sys.exit(status)


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End this process with one line on an error of the user, or a signal, in the block."""
    try:
        yield
    except BrokenPipeError:
        end_if_unread()
        raise  # it is another pipe, or a socket
    except KeyboardInterrupt as error:
        end_as_stopped(error)
    except (BertlineError, OSError, UnicodeEncodeError) as error:
        plain = error if isinstance(error, BertlineError) else plain_error(error)
        if plain is None:
            raise
        print(f"error: {printable(str(plain))}", file=sys.stderr, flush=True)
        sys.exit(1)


def end_if_unread() -> None:
    """Exit without a word if what reads the output has ended, as `head` does."""
    output = select.poll()
    output.register(1, 0)
    if output.poll(0):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes it again at its end
        sys.exit(128 + signal.SIGPIPE)


def require_home() -> None:
    """Raise a MachineError if this account has no home folder: libraries keep caches there, or in a folder named ~."""
    try:
        Path.home()
    except RuntimeError as error:
        raise MachineError("this account has no home folder. Set HOME to a folder that it can write to.") from error


def end_as_stopped(error: KeyboardInterrupt) -> NoReturn:
    """Print what stopped this command, in one line, and exit as shells expect it: 128 + the signal."""
    number = error.number if isinstance(error, Stopped) else RECEIVED.first or signal.SIGINT
    with suppress(OSError):  # the terminal is closed
        print(f"stopped {str(error) or f'by {named(number)}'}", file=sys.stderr, flush=True)
    sys.exit(128 + number)
