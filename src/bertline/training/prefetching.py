"""Prefetch batches in a thread, so that the training loop finds the next one ready."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

Item = TypeVar("Item")

_END = object()


def prefetched(items: Iterable[Item], *, ahead: int) -> Generator[Item, None, None]:
    """Yield the same items in the same order, with up to `ahead` of them fetched in advance.

    Receiving a batch from another process takes 1 to 2 ms for its tensors, which overlap with the model's step here. An
    exception while fetching is raised where its item would have come. When the caller stops early, the thread ends
    after the item that it is fetching.

    Args:
        items: Items to prefetch; only the thread iterates over them.
        ahead: Number of items to fetch in advance, at least 1.
    """
    # The iterator is created here, not in the thread: this makes a loader fork workers, which a thread should not.
    source = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="prefetching") as thread:
        # One more than are ready is in the thread's hand.
        fetched = deque(thread.submit(next, source, _END) for _ in range(ahead + 1))
        try:
            while (item := fetched.popleft().result()) is not _END:
                fetched.append(thread.submit(next, source, _END))
                yield cast(Item, item)
        finally:
            thread.shutdown(cancel_futures=True)
