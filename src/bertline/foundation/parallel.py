"""Work spread over processes whose results come back in the order of the input."""

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
    """Like `map`, over `num_workers` processes: the same results in the same order, whatever the number.

    Only a few items a worker are taken from `items` in advance, so that an endless input needs bounded memory.

    Args:
        function: A function of a module (processes are spawned, so it is pickled by name).
        items: The input; consumed in this process.
        num_workers: Processes; 0 or 1 works in this process.
        in_flight_per_worker: Items handed out and not yet returned, for each worker.

    Raises:
        MachineError: A worker was killed, which is nearly always for memory.
    """
    if num_workers <= 1:
        yield from map(function, items)
        return
    # Spawn: forking a process that runs threads (progress bars, Arrow) can leave a child with a lock held for ever.
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
