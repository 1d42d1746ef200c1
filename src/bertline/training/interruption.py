"""Stopping between two steps: Ctrl-C or a scheduler's SIGTERM saves first, instead of losing the steps since."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from bertline.foundation.progress import say
from bertline.training.devices import Ranks
from bertline.training.distributed import sum_over_ranks

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# One request may arrive several times: Slurm signals all processes of a step at once, and the launcher and torchrun
# each pass on what they get.
_SAME_REQUEST_S = 1.0
# Schedulers give half a minute between TERM and KILL, and the save takes its share; a wait for the device once a
# second is nothing.
_AGREE_EVERY_S = 1.0


class TrainingInterrupted(KeyboardInterrupt):
    """Training was asked to stop and has saved its place; starting it again goes on from there."""


class StopRequest:
    """Remembers that a signal came. Handlers do nothing else: saving inside one can hang or save half a step.

    Args:
        now: A clock in seconds, for tests.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.signal_name: str | None = None
        self._now = now
        self._made_at = 0.0

    @property
    def made(self) -> bool:
        """Whether a signal has come."""
        return self.signal_name is not None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM until the block ends. A second signal, a second later, ends the process at once.

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
        if self.signal_name is not None:
            if self._now() - self._made_at >= _SAME_REQUEST_S:
                signal.default_int_handler(number, frame)
            return
        self.signal_name, self._made_at = signal.Signals(number).name, self._now()
        say(f"{self.signal_name}: training stops after a step and saves it. Once more stops at once.")


class StopAgreement:
    """Makes all ranks stop after the same step: signals reach them at different moments, or only some of them.

    To agree, ranks wait for the device, and so for one another. They do it about once a second: in each step where a
    step takes that long, at most every `most_steps` where steps are short. How often is measured by the first rank.

    Args:
        request: Of this rank.
        ranks: This one among the others.
        device: Of this rank.
        most_steps: Steps between two agreements at most.
        now: A clock in seconds.
    """

    def __init__(
        self,
        request: StopRequest,
        *,
        ranks: Ranks,
        device: torch.device,
        most_steps: int,
        now: Callable[[], float],
    ) -> None:
        self._request = request
        self._ranks = ranks
        self._device = device
        # Divisors, so that ranks agree where they wait for the device anyway: at every multiple of `most_steps`.
        self._intervals = [steps for steps in range(1, most_steps + 1) if most_steps % steps == 0]
        self._interval = 1
        self._now = now
        self._last: tuple[int, float] | None = None

    def reached(self, step: int) -> bool:
        """Whether to stop after this step, which is the last finished one. Every rank asks after every step."""
        if self._ranks.world_size == 1:
            return self._request.made
        if step % self._interval:
            return False
        if sum_over_ranks([self._request.made], self._device)[0]:
            return True
        # Only now have the steps been taken: before, the device may have been behind.
        now, last = self._now(), self._last
        if last is not None:
            interval = self._within_time((now - last[1]) / (step - last[0])) if self._ranks.is_first else 0
            self._interval = int(sum_over_ranks([interval], self._device)[0])
        self._last = step, now
        return False

    def _within_time(self, step_s: float) -> int:
        return max((steps for steps in self._intervals if steps * step_s <= _AGREE_EVERY_S), default=1)


def ignore_signals_in_worker(worker_id: int) -> None:
    """For data workers: Ctrl-C reaches the whole process group, but it is the trainer that ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
