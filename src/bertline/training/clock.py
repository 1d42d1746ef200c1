"""Training time: wall-clock time without validation, mask predictions and checkpoints, and the wait for data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """Breakdown of elapsed time, in seconds."""

    trained_s: float = 0.0
    """Time training, including waiting for data, without pauses."""
    waited_s: float = 0.0
    paused_s: float = 0.0
    """Time paused for probes, validation and saving."""

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(
            trained_s=self.trained_s - other.trained_s,
            waited_s=self.waited_s - other.waited_s,
            paused_s=self.paused_s - other.paused_s,
        )


class TrainingClock:
    """Measures seconds of training, of waiting for data and of pauses over a whole run, once it is started.

    Args:
        before: Seconds of the run in earlier processes.
    """

    def __init__(self, before: Seconds | None = None, *, now: Callable[[], float] = time.perf_counter) -> None:
        self._before = before or Seconds()
        self._now = now
        self._started: float | None = None
        self._waited_s = self._paused_s = 0.0
        self._pause_begun: float | None = None

    def start(self) -> None:
        """Start the clock; the seconds of this process so far do not count."""
        self._started = self._now()
        self._waited_s = self._paused_s = 0.0
        self._pause_begun = None

    @property
    def seconds(self) -> Seconds:
        """Seconds of the run, including a pause in progress."""
        if self._started is None:
            return self._before
        now = self._now()
        paused_s = self._paused_s + (0.0 if self._pause_begun is None else now - self._pause_begun)
        return Seconds(
            trained_s=self._before.trained_s + now - self._started - paused_s,
            waited_s=self._before.waited_s + self._waited_s,
            paused_s=self._before.paused_s + paused_s,
        )

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count the time inside the block as a pause, not as training."""
        if self._pause_begun is not None:  # nested pause
            yield
            return
        self._pause_begun = self._now()
        try:
            yield
        finally:
            self._paused_s += self._now() - self._pause_begun
            self._pause_begun = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside the block as waiting for the next batch."""
        begun = self._now()
        try:
            yield
        finally:
            self._waited_s += self._now() - begun
