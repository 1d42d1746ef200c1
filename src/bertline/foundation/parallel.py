"""Worker processes: functions applied by several of them in order, their end with their parent's,
their cores."""

import multiprocessing
import os
import platform
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

from bertline.foundation.errors import MachineError

Item = TypeVar("Item")
Result = TypeVar("Result")
_IN_FLIGHT = 3
"""Items of a worker that are submitted and not yet returned."""


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may compute on: a scheduler may leave it
    few of a machine's."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def processor_name() -> str:
    """Return the model of the processor, such as `AMD EPYC 9B14`; the architecture where the model
    is not known."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def batches(
    items: Iterable[Item], *, size: Callable[[Item], int], most: int, most_items: int | None = None
) -> Iterator[list[Item]]:
    """Yield items in lists, each of which ends when the sizes of its items add up to `most` or with
    `most_items` items.

    The boundaries depend on the items only, so that work on the lists does not depend on the number
    of workers.

    >>> list(batches(["ab", "c", "d", "e"], size=len, most=3, most_items=2))
    [['ab', 'c'], ['d', 'e']]
    """
    batch: list[Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= most or len(batch) == most_items:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], *, num_workers: int, in_threads: bool = False
) -> Iterator[Result]:
    """Map a function over items in `num_workers` processes; results and their order do not depend
    on the number.

    Only three items per worker are taken from `items` in advance, so an endless input needs bounded
    memory.

    With 0 or 1 worker, all is done in this process. The function is picklable and defined in a
    module (processes are spawned); `in_threads` uses threads instead, for work outside Python's
    lock that shares memory, such as a model.

    Raises:
        MachineError: A worker was killed, nearly always for lack of memory.
    """
    if num_workers <= 1:
        yield from map(function, items)
        return
    executor: Executor = ThreadPoolExecutor(num_workers) if in_threads else _processes(function, num_workers)
    apply = function if in_threads else _apply
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(executor.submit(apply, item))
            if len(waiting) >= num_workers * _IN_FLIGHT:
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


def _processes(function: Callable[..., Any], num_workers: int) -> Executor:
    """Return processes that apply a function, which each of them is sent once."""
    # Spawn: forking a process with threads (progress bars, Arrow) can leave a lock held forever in
    # the child.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(num_workers, context, initializer=_start, initargs=(function,))


_FUNCTION: list[Callable[..., Any]] = []
"""What this worker process applies."""


def _start(function: Callable[..., Any]) -> None:
    end_with_parent()
    _FUNCTION[:] = [function]


def _apply(item: Any) -> Any:
    return _FUNCTION[0](item)


def end_with_parent() -> None:
    """Make this spawned process exit as soon as its parent process ends for any reason.

    A killed parent cannot stop its workers: an idle worker would wait forever, and a busy one would
    still be running when the next run starts. Ctrl-C is left to the parent. No effect in a process
    that multiprocessing did not start.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    # A terminal sends Ctrl-C to all its processes: the parent answers it, and a traceback of each
    # worker says nothing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()
