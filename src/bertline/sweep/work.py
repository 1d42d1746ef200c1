"""The work of a sweep, in pieces that the supervisor hands out one at a time."""

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
    """A piece of work: a function of a module, which is called with the bench and the argument."""

    function: Callable[[Bench, Any], Any]
    argument: Any


class Source(Protocol):
    """Where work comes from, and where it goes when it is done or lost. Called by the supervisor only."""

    def take(self) -> Work | None:
        """The next piece of work; None where there is none now."""
        ...

    def is_finished(self) -> bool:
        """Whether none will come any more."""
        ...

    def done(self, work: Work, result: Any) -> None:
        """A piece of work came to its end."""
        ...

    def lost(self, work: Work) -> None:
        """The process that was at a piece of work is gone."""
        ...


class KnownWork:
    """Work that is known beforehand; a piece whose worker died is put back behind the others.

    Args:
        job: The sweep.
        pieces: Functions that return what there is to say.
    """

    def __init__(self, job: SweepJob, pieces: Sequence[Work]) -> None:
        self._job = job
        self._waiting = deque(pieces)
        self._num_open = len(pieces)
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
            MachineError: The piece has been lost too often.
        """
        self._losses[id(work)] += 1
        if self._losses[id(work)] > self._job.sweep.max_retries:
            raise MachineError(
                f"{self._job.task_name}: a run of one of the best configurations, or the baselines, took its process "
                f"with it {self._losses[id(work)]} times, most likely for lack of memory. Run the stage again with "
                "fewer workers (runtime.sweep_workers) or on a larger machine: it goes on where it was."
            )
        # At the end: were it at fault, it would take its next process from work that can be done.
        self._waiting.append(work)
