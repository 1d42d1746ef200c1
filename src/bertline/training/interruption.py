"""Stopping between two steps: Ctrl-C or a scheduler's SIGTERM saves first, instead of losing the steps since."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bertline.foundation.progress import say

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class TrainingInterrupted(KeyboardInterrupt):
    """Training was asked to stop and has saved its place; starting it again goes on from there."""


class StopRequest:
    """Remembers that a signal came. Handlers do nothing else: saving inside one can hang or save half a step."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    @property
    def made(self) -> bool:
        """Whether a signal has come."""
        return self.signal_name is not None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM until the block ends. A second signal acts at once, as it would without us.

        In a thread other than the main one Python cannot take signals; there nothing changes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal_name = signal.Signals(number).name
        for each in _SIGNALS:
            signal.signal(each, signal.default_int_handler)
        say(f"{self.signal_name}: the step in progress is finished and saved. Once more stops at once.")


def ignore_signals_in_worker(worker_id: int) -> None:
    """For data workers: Ctrl-C reaches the whole process group, but it is the trainer that ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
