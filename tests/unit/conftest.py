"""Unit tests start no worker processes for data: `ordered_map` hands each item to this process instead."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

from bertline.foundation import parallel


class _Here:
    """A pool whose work is done here; what would go to a process and back is pickled as it would be."""

    def __init__(self, num_workers: int, *, mp_context: Any, initializer: Callable[..., None], initargs: tuple[bytes]):
        self.function = ForkingPickler.loads(initargs[0])

    def submit(self, apply: Callable[[Any], Any], item: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(_sent(self.function(_sent(item))))
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self, **_: Any) -> None:
        pass


def _sent(value: Any) -> Any:
    return ForkingPickler.loads(ForkingPickler.dumps(value))


@pytest.fixture(autouse=True)
def data_workers_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes are for the tests of `ordered_map` itself."""
    if request.node.path.name != "test_parallel.py":
        monkeypatch.setattr(parallel, "ProcessPoolExecutor", _Here)
