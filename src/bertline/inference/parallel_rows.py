"""Blocks of rows that several threads predict at once, given back in their order.

One thread of computing for each block is more than all of them on one block after the other: nobody waits for anybody
in the many short operations of a small model, and what Python does between them is spread too. The model's weights are
in memory once. What a block's rows get does not depend on the number of threads.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from bertline.foundation.errors import DataError

Item = TypeVar("Item")
Result = TypeVar("Result")

_IN_FLIGHT_PER_WORKER = 2


def map_in_threads(workers: Sequence[Callable[[Item], Result]], items: Iterable[Item]) -> Iterator[Result]:
    """Like `map`, in as many threads as there are workers, each of which is used by one thread at a time.

    Args:
        workers: Any of them may get any item. One works in this thread.
        items: The input; consumed in this thread, a few items for each worker in advance.

    Raises:
        DataError: Of `items`, after the results of the items before; or of a worker.
    """
    if len(workers) == 1:
        yield from map(workers[0], items)
        return
    free: queue.SimpleQueue[Callable[[Item], Result]] = queue.SimpleQueue()
    for worker in workers:
        free.put(worker)

    def work(item: Item) -> Result:
        worker = free.get()
        try:
            return worker(item)
        finally:
            free.put(worker)

    executor = ThreadPoolExecutor(len(workers))
    waiting: deque[Future[Result]] = deque()
    failed: DataError | None = None
    source = iter(items)
    try:
        while True:
            try:
                item = next(source)
            except StopIteration:
                break
            except DataError as error:
                # What was read before is worth keeping.
                failed = error
                break
            waiting.append(executor.submit(work, item))
            if len(waiting) >= len(workers) * _IN_FLIGHT_PER_WORKER:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        if failed is not None:
            raise failed
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def num_threads_for(device: torch.device, asked: int | None) -> int:
    """Threads to predict in: on a CPU as many as asked for, or as PyTorch would use (OMP_NUM_THREADS; else all cores).

    Elsewhere one: the device computes one batch after the other.
    """
    if device.type != "cpu":
        return 1
    return torch.get_num_threads() if asked is None else asked


@contextmanager
def one_thread_each(device: torch.device) -> Iterator[None]:
    """Inside the block, every thread computes by itself; for a device that is no CPU, nothing changes."""
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
