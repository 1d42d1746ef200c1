"""Stop training between two steps: on Ctrl-C or a scheduler's signal, a checkpoint is saved and no step is lost."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

import torch

from bertline.foundation.progress import say
from bertline.foundation.signals import RECEIVED, STOP_SIGNALS, StopSignals
from bertline.training.devices import Ranks, sum_over_ranks


class TrainingInterrupted(KeyboardInterrupt):
    """Training was stopped on request; starting it again resumes from the last checkpoint."""


@dataclass
class StopRequest:
    """Records that a signal arrived. The handlers save nothing: saving inside one can hang or save half a step."""

    received: StopSignals = field(default_factory=StopSignals)
    signal_name: str | None = None

    @property
    def made(self) -> bool:
        """Whether a signal has arrived."""
        return self.signal_name is not None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals of `STOP_SIGNALS` until the block ends; outside of the main thread, do nothing.

        Repetitions change nothing, with one exception: a second Ctrl-C, at least 1 s later, ends training at once.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        listened_to = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._note) for number in listened_to}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        RECEIVED.note(number)
        if self.received.note(number):
            signal.default_int_handler(number, frame)
        if self.signal_name is None:
            self.signal_name = signal.Signals(number).name
            # A handler that interrupts a print cannot print.
            with suppress(RuntimeError, OSError):
                say(f"{self.signal_name}: training stops after a step and saves it. A second Ctrl-C stops at once.")


@dataclass
class StopAgreement:
    """Makes all ranks stop, or save, after the same step: signals reach them at different times, or only some of them.

    To agree, ranks wait for the device, and so for one another: after each step if steps take a second, and at least
    every `most_steps` steps if they are short. The first rank measures the step time.
    """

    request: StopRequest
    ranks: Ranks
    device: torch.device
    most_steps: int
    """Largest number of steps between two agreements."""
    now: Callable[[], float]
    asks_to_save: Callable[[], bool] = lambda: False
    """Whether a checkpoint is due by the clock; called on the first rank only."""
    is_save_due: bool = False
    """Whether all ranks save after the step of the last `reached`, because the first one asked to."""
    _interval: int = 1
    _last: tuple[int, float] | None = None

    def reached(self, step: int) -> bool:
        """Return whether to stop after this step, the last finished one. Every rank calls this after every step."""
        self.is_save_due = False
        if self.ranks.world_size > 1 and step % self._interval:
            return False
        asked = [self.request.made, self.ranks.is_first and self.asks_to_save()]
        stops, self.is_save_due = map(bool, sum_over_ranks(asked, self.device))
        if stops or self.ranks.world_size == 1:
            return stops
        # Only after the sum are the steps complete on the device: before, it may have been behind.
        now, last = self.now(), self._last
        if last is not None:
            step_s = (now - last[1]) / (step - last[0])
            # Divisors, so that ranks also agree at every multiple of `most_steps`, where they wait for the device.
            divisors = (steps for steps in range(1, self.most_steps + 1) if self.most_steps % steps == 0)
            # Schedulers give half a minute between TERM and KILL, of which saving takes a part; waiting for the device
            # once per second costs almost nothing.
            interval = max((steps for steps in divisors if steps * step_s <= 1), default=1)
            self._interval = int(sum_over_ranks([interval if self.ranks.is_first else 0], self.device)[0])
        self._last = step, now
        return False


@contextmanager
def starting_workers() -> Iterator[None]:
    """Delay TERM in the block, and in the data workers that it starts, until they call `ignore_signals_in_worker`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals_in_worker(worker_id: int) -> None:
    """Ignore requests to stop in a data worker, which reach all processes: it ends when its trainer says so, or ends.

    Slurm sends TERM to every process of a step: a worker that it ended would make training fail before it can save.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
