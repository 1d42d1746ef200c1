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
    """Measures seconds of training, of waiting for data and of pauses since the last `start`."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self.start()

    def start(self) -> None:
        """Reset the clock and start it."""
        self._started = self._now()
        self._paused_s = 0.0
        self._pause_begun: float | None = None
        self.waited_s = 0.0

    @property
    def seconds(self) -> Seconds:
        """Seconds since the start, including a pause in progress."""
        now = self._now()
        paused_s = self._paused_s + (0.0 if self._pause_begun is None else now - self._pause_begun)
        return Seconds(trained_s=now - self._started - paused_s, waited_s=self.waited_s, paused_s=paused_s)

    @property
    def trained_s(self) -> float:
        """Seconds of training since the start, including waiting for data, without pauses."""
        return self.seconds.trained_s

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
            self.waited_s += self._now() - begun


class Lap:
    """Measures the seconds since the last `end`, which may have been in an earlier process.

    Args:
        before: Seconds that the earlier process had counted since that `end`.
    """

    def __init__(self, clock: TrainingClock, before: Seconds | None = None) -> None:
        self._clock = clock
        self._before = before or Seconds()
        self.resume()

    def resume(self) -> None:
        """Count from now on, in addition to the seconds of the earlier process. Call before the first `end`."""
        self._begun = self._clock.seconds - self._before

    @property
    def seconds(self) -> Seconds:
        """Seconds of this lap so far."""
        return self._clock.seconds - self._begun

    def end(self) -> Seconds:
        """Return the seconds of this lap; the next one begins at the same moment."""
        now = self._clock.seconds
        found, self._begun = now - self._begun, now
        return found
