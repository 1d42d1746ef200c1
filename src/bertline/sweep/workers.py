"""The processes of a sweep, each with the data ready."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from bertline.foundation.errors import MachineError
from bertline.foundation.orphans import end_with_parent
from bertline.sweep.bench import Bench
from bertline.sweep.job import PlannedSweep

Item = TypeVar("Item")
Result = TypeVar("Result")

_bench: Bench | None = None


class Workers:
    """Runs functions of `(bench, ...)` in this process, or in `runtime.sweep_workers` processes beside it."""

    def __init__(self, plan: PlannedSweep, executor: ProcessPoolExecutor | None) -> None:
        self._number = plan.job.runtime.sweep_workers
        self._executor = executor
        self._own_bench = Bench(plan) if executor is None else None

    def run_everywhere(self, function: Callable[[Bench, int], None]) -> None:
        """Run a function once a worker, with the worker's number."""
        for _ in self.map_unordered(function, range(self._number if self._executor else 1)):
            pass

    def map_unordered(self, function: Callable[[Bench, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Results as they come.

        Raises:
            MachineError: A worker was killed. What had finished is kept; run the stage again and it goes on.
        """
        if self._executor is None:
            assert self._own_bench is not None
            for item in items:
                yield function(self._own_bench, item)
            return
        futures = [self._executor.submit(_with_bench, function, item) for item in items]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise MachineError(
                "A worker of the sweep died, most likely for lack of memory. What had finished is kept: run the stage "
                "again and it goes on, with fewer workers if need be (runtime.sweep_workers)."
            ) from error
        finally:
            for future in futures:
                future.cancel()


@contextmanager
def started_workers(plan: PlannedSweep) -> Iterator[Workers]:
    """Start the workers of a sweep; one worker is this process itself."""
    if plan.job.runtime.sweep_workers == 1:
        yield Workers(plan, None)
        return
    executor = ProcessPoolExecutor(
        plan.job.runtime.sweep_workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare,
        initargs=(plan,),
    )
    try:
        yield Workers(plan, executor)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _prepare(plan: PlannedSweep) -> None:
    global _bench
    end_with_parent()
    _bench = Bench(plan)


def _with_bench(function: Callable[[Bench, Item], Result], item: Item) -> Result:
    assert _bench is not None
    return function(_bench, item)
