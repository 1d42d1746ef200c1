"""All tests here need a CUDA device, and are skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from pretraining_inputs import OPTIMIZERS

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))


@pytest.fixture
def optimizers() -> dict[str, dict[str, Any]]:
    """Sections of configuration of each optimizer, and of AdamW without clipping."""
    return {**OPTIMIZERS, "unclipped": {**OPTIMIZERS["adamw"], "max_grad_norm": None}}


@pytest.fixture
def without_waiting() -> Callable[[], AbstractContextManager[None]]:
    """`with without_waiting():`, where whatever waits for the device is an error."""

    @contextmanager
    def guarded() -> Iterator[None]:
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return guarded
