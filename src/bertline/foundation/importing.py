"""Imports of less and without garbage collection: each is a third of the time of a process that imports Lightning."""

from __future__ import annotations

import gc
import importlib.util
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_OF_LIGHTNING = {
    "Metric": "torchmetrics.metric",
    "MetricCollection": "torchmetrics.collections",
    "__version__": "torchmetrics.__about__",
}
"""What Lightning takes from torchmetrics, and where it is defined."""


def defer_torchmetrics() -> None:
    """Let Lightning import two classes of torchmetrics, and whoever asks it for more all of it.

    Importing torchmetrics imports every metric, and with them SciPy and, where it is installed, Transformers. Its
    modules and classes remain the same objects, whichever way they were imported. Call it before Lightning is imported.
    """
    spec = importlib.util.find_spec("torchmetrics") if "torchmetrics" not in sys.modules else None
    if spec is None or spec.loader is None:
        return
    package, loader = importlib.util.module_from_spec(spec), spec.loader

    def attribute(name: str) -> Any:
        if name in _OF_LIGHTNING:
            with suppress(ImportError, AttributeError):  # a version that needs all of itself gets it
                importlib.import_module("torchmetrics.utilities")  # first: it and torchmetrics.metric import each other
                return getattr(importlib.import_module(_OF_LIGHTNING[name]), name)
        elif name.startswith("__"):
            raise AttributeError(f"module 'torchmetrics' has no attribute {name!r}")
        vars(package).pop("__getattr__", None)
        loader.exec_module(package)
        return getattr(package, name)

    vars(package).update(__getattr__=attribute, _logger=logging.getLogger("torchmetrics"))
    sys.modules["torchmetrics"] = package


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
