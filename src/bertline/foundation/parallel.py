"""Parallel map over processes, with results in input order."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from bertline.foundation.errors import MachineError
from bertline.foundation.orphans import end_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], *, num_workers: int, in_flight_per_worker: int = 3
) -> Iterator[Result]:
    """Map a function over items in `num_workers` processes; results and their order do not depend on the number.

    Only a few items per worker are taken from `items` in advance, so an endless input needs bounded memory.

    Args:
        function: A picklable function, defined in a module (processes are spawned).
        items: The input; consumed in this process.
        num_workers: Number of processes; 0 or 1 runs in this process.
        in_flight_per_worker: Maximum number of items submitted and not yet returned, per worker.

    Raises:
        MachineError: A worker was killed, nearly always for lack of memory.
    """
    if num_workers <= 1:
        yield from map(function, items)
        return
    # Spawn: forking a process with threads (progress bars, Arrow) can leave a lock held forever in the child.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(num_workers, mp_context=context, initializer=end_with_parent)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(executor.submit(function, item))
            if len(waiting) >= num_workers * in_flight_per_worker:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise MachineError(
            f"A worker process died while {num_workers} were at work, most likely for lack of memory. "
            "Use fewer (runtime.num_workers)."
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
