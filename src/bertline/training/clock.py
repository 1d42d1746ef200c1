"""Time spent training: the wall clock without validation, film strips and checkpoints, and the wait for data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TrainingClock:
    """Seconds of training and of waiting for data, since the last `start`.

    Args:
        now: A clock in seconds, for tests.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self.start()

    def start(self) -> None:
        """Begin anew: what went before does not count."""
        self._started = self._now()
        self._paused_s = 0.0
        self.waited_s = 0.0

    @property
    def trained_s(self) -> float:
        """Seconds since the start, waiting included, pauses not."""
        return self._now() - self._started - self._paused_s

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside is not training."""
        begun = self._now()
        try:
            yield
        finally:
            self._paused_s += self._now() - begun

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What happens inside is waiting for the next batch."""
        begun = self._now()
        try:
            yield
        finally:
            self.waited_s += self._now() - begun
