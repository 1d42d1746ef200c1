"""Prefetch batches in a thread, so that the training loop finds the next one ready."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar, cast

Item = TypeVar("Item")

_WAIT_S = 0.2


def prefetched(items: Iterable[Item], *, ahead: int) -> Generator[Item, None, None]:
    """Yield the same items in the same order, with up to `ahead` of them fetched in advance.

    Receiving a batch from another process takes 1 to 2 ms for its tensors, which overlap with the model's step here. An
    exception while fetching is raised where its item would have come. When the caller stops early, the thread ends
    after the item that it is fetching.

    Args:
        items: Items to prefetch; only the thread iterates over them.
        ahead: Number of items to fetch in advance, at least 1.
    """
    ready: queue.Queue[tuple[str, object]] = queue.Queue(maxsize=ahead)
    stopped = threading.Event()

    def put(kind: str, value: object) -> bool:
        while not stopped.is_set():
            try:
                ready.put((kind, value), timeout=_WAIT_S)
            except queue.Full:
                continue
            return True
        return False

    def fetch(source: Iterator[Item]) -> None:
        try:
            for item in source:
                if not put("item", item):
                    return
        except BaseException as error:  # raised again in the caller
            put("error", error)
        else:
            put("end", None)

    def taken() -> Generator[Item, None, None]:
        # The iterator is created here, not in the thread: this makes a loader fork workers, which a thread should not.
        thread = threading.Thread(target=fetch, args=(iter(items),), name="prefetching", daemon=True)
        thread.start()
        try:
            while True:
                kind, value = ready.get()
                if kind == "end":
                    return
                if kind == "error":
                    raise cast(BaseException, value)
                yield cast(Item, value)
        finally:
            stopped.set()
            thread.join()

    return taken()
