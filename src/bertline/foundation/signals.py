"""Signals that ask a process to stop: Ctrl-C, TERM of schedulers, USR1 and USR2 of job scripts, HUP
of a terminal."""

import _thread
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

STOP_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    *([] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]),
)
"""All of them, without HUP where it is ignored, as under `nohup`. Schedulers repeat one: Slurm
sends TERM when the grace time begins and when it ends, to every process of a step at once, and
launchers pass on what they receive."""
_OF_SCRIPTS = (signal.SIGUSR1, signal.SIGUSR2)
_PASSES_ON = "job-script-signals"
# Two Ctrl-C within this time are one: several processes may have passed the same one on.
_SAME_CTRL_C_S = 1.0


@dataclass
class StopSignals:
    """The signals that a process has received."""

    now: Callable[[], float] = time.monotonic
    """Function that returns the time in seconds, replaced in tests."""
    first: int | None = None
    """The first one; None: there was none."""
    _ctrl_c_at: float | None = None

    def note(self, number: int) -> bool:
        """Note a signal. Returns whether a person is tired of waiting: a second Ctrl-C, at least 1
        s after the first.

        No other repetition means more than the first signal did.
        """
        if self.first is None:
            self.first = number
        if number != signal.SIGINT:
            return False
        now = self.now()
        if self._ctrl_c_at is None:
            self._ctrl_c_at = now
        return now - self._ctrl_c_at >= _SAME_CTRL_C_S


RECEIVED = StopSignals()
"""The signals of this process, whichever handler was in place when they arrived."""


def hold_signals() -> None:
    """Delay TERM, USR1 and USR2 until `receive_signals`, in this process and in those that it
    starts.

    USR1 and USR2 end a process that has no handler for them, so one that waits until it has
    imported everything, or a child process that knows nothing of them, would be killed.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, *_OF_SCRIPTS})


def receive_signals(handler: Callable[[int, FrameType | None], Any]) -> None:
    """Call `handler` in the main thread for each signal to stop, also for those that `hold_signals`
    has delayed.

    USR1 and USR2 remain blocked, and so they do in child processes: a thread waits for them and
    passes them on to the main thread. Call it in the main thread.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _OF_SCRIPTS)
    for number in STOP_SIGNALS:
        signal.signal(number, handler)
    if not any(thread.name == _PASSES_ON for thread in threading.enumerate()):
        threading.Thread(target=_pass_on, name=_PASSES_ON, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _pass_on() -> None:
    while True:
        _thread.interrupt_main(signal.Signals(signal.sigwait(_OF_SCRIPTS)))
