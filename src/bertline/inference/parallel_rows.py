"""Prediction of blocks of rows in several threads, with results in order.

One compute thread per block is faster than all threads on one block at a time: threads do not wait for each other in
the many short operations of a small model, and Python's overhead between operations is parallelized too. The threads
share the model's weights. The results do not depend on the number of threads.
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
    """Like `map`, with one thread per worker; each worker is used by one thread at a time.

    Args:
        workers: Functions that map an item; any of them may get any item. A single worker runs in this thread.
        items: Inputs; consumed in this thread, a few items per worker in advance.

    Raises:
        DataError: A worker raised it, or `items` did; then it is raised after the results of the previous items.
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

    def submitted() -> Iterator[Future[Result]]:
        try:
            for item in items:
                yield executor.submit(work, item)
        except DataError as error:
            # The results of the items read before the error are kept.
            failed: Future[Result] = Future()
            failed.set_exception(error)
            yield failed

    waiting: deque[Future[Result]] = deque()
    try:
        for future in submitted():
            waiting.append(future)
            if len(waiting) >= len(workers) * _IN_FLIGHT_PER_WORKER:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def prediction_threads(device: torch.device, asked: int | None) -> Iterator[int]:
    """Yield the number of prediction threads; within the context, each of them computes on one core.

    On a CPU this is `asked`, or PyTorch's default (OMP_NUM_THREADS or all cores). On other devices, which compute one
    batch at a time, it is 1.
    """
    if device.type != "cpu":
        yield 1
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before if asked is None else asked
    finally:
        torch.set_num_threads(before)
