"""Imports without garbage collection: a third of the time of a process that imports Lightning."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected_imports() -> Iterator[None]:
    """Collect no garbage while a process imports its libraries, and never look at what they made again.

    Modules, classes and functions remain until the process ends. The collector would look through them many times
    while they come, in each full collection after that, and at the end. What the block leaves in cycles is kept, so use
    it once for a process, and for imports only.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
