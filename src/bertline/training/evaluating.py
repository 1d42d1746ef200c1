"""Run a model in evaluation mode during its training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from bertline.training.devices import Machine


@contextmanager
def evaluating(module: nn.Module, machine: Machine) -> Iterator[Callable[..., Any]]:
    """Yield the module's uncompiled forward, without dropout and gradients and in the machine's precision.

    The compiled forward is specialised for the shapes of training; other shapes would each cost a compilation. The mode
    of each submodule is restored at the end.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    autocast = torch.autocast(machine.device.type, dtype=torch.bfloat16, enabled=machine.precision == "bf16")
    try:
        with torch.no_grad(), autocast:
            yield module.forward
    finally:
        for part, was_training in modes:  # one by one: a frozen part of a model being trained is in eval mode
            part.training = was_training
