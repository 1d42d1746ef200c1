"""Time spent training: the wall clock without validation, film strips and checkpoints, and the wait for data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """Where time went."""

    trained_s: float = 0.0
    """Waiting included, pauses not."""
    waited_s: float = 0.0
    """For data."""
    paused_s: float = 0.0
    """For probes, validation and saving."""

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(
            trained_s=self.trained_s + other.trained_s,
            waited_s=self.waited_s + other.waited_s,
            paused_s=self.paused_s + other.paused_s,
        )

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(
            trained_s=self.trained_s - other.trained_s,
            waited_s=self.waited_s - other.waited_s,
            paused_s=self.paused_s - other.paused_s,
        )


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
        self._pause_begun: float | None = None
        self.waited_s = 0.0

    @property
    def seconds(self) -> Seconds:
        """Since the start; a pause that lasts still is in them."""
        now = self._now()
        paused_s = self._paused_s + (0.0 if self._pause_begun is None else now - self._pause_begun)
        return Seconds(trained_s=now - self._started - paused_s, waited_s=self.waited_s, paused_s=paused_s)

    @property
    def trained_s(self) -> float:
        """Seconds since the start, waiting included, pauses not."""
        return self.seconds.trained_s

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside is not training."""
        if self._pause_begun is not None:  # a pause in a pause
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
        """What happens inside is waiting for the next batch."""
        begun = self._now()
        try:
            yield
        finally:
            self.waited_s += self._now() - begun


class Lap:
    """Seconds since the last `end`, which may have been in a process before this one.

    Args:
        clock: Of this process.
        before: What the process before had counted since that `end`.
    """

    def __init__(self, clock: TrainingClock, before: Seconds | None = None) -> None:
        self._clock = clock
        self._before = before or Seconds()
        self.go_on()

    def go_on(self) -> None:
        """Count from now on, beside what the process before had."""
        self._begun = self._clock.seconds

    @property
    def seconds(self) -> Seconds:
        """So far."""
        return self._before + (self._clock.seconds - self._begun)

    def end(self) -> Seconds:
        """The seconds of this lap; the next one begins at the same moment."""
        now = self._clock.seconds
        found = self._before + (now - self._begun)
        self._before, self._begun = Seconds(), now
        return found
