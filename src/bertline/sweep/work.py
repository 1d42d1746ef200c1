"""Units of work of a sweep, which the supervisor assigns to worker processes one at a time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bertline.foundation.errors import MachineError
from bertline.foundation.progress import say
from bertline.sweep.bench import Bench
from bertline.sweep.job import SweepJob


@dataclass(frozen=True, slots=True)
class Work:
    """A unit of work: a module-level function, called with the bench and the argument."""

    function: Callable[[Bench, Any], Any]
    argument: Any


class Source(Protocol):
    """Provides work and is notified when it is finished or lost. Called by the supervisor only."""

    def take(self) -> Work | None:
        """The next unit of work; None if none is available now."""
        ...

    def is_finished(self) -> bool:
        """Whether all work is done."""
        ...

    def done(self, work: Work, result: Any) -> None:
        """Called when a unit is finished."""
        ...

    def lost(self, work: Work) -> None:
        """Called when the worker process died before the unit was finished."""
        ...


class KnownWork:
    """A fixed list of units; one whose worker died is retried after the others.

    Args:
        job: The sweep.
        units: Units whose functions return the progress message.
    """

    def __init__(self, job: SweepJob, units: Sequence[Work]) -> None:
        self._job = job
        self._waiting = deque(units)
        self._num_open = len(units)
        self._losses: Counter[int] = Counter()

    def take(self) -> Work | None:
        """See `Source`."""
        return self._waiting.popleft() if self._waiting else None

    def is_finished(self) -> bool:
        """See `Source`."""
        return self._num_open == 0

    def done(self, work: Work, result: str) -> None:
        """See `Source`."""
        self._num_open -= 1
        say(f"{self._job.task_name}, {result}")

    def lost(self, work: Work) -> None:
        """See `Source`.

        Raises:
            MachineError: The unit has been lost more than `sweep.max_retries` times.
        """
        self._losses[id(work)] += 1
        if self._losses[id(work)] > self._job.sweep.max_retries:
            raise MachineError(
                f"{self._job.task_name}: a run of one of the best configurations, or the baselines, lost its process "
                f"{self._losses[id(work)]} times, most likely for lack of memory. Run the stage again with fewer "
                "workers (runtime.sweep_workers) or on a larger machine: it is resumed."
            )
        # Retried last: if the unit itself kills its process, the other units are finished first.
        self._waiting.append(work)
