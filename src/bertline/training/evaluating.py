"""Running a model that is being trained without training it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from bertline.training.devices import Machine


@contextmanager
def evaluating(module: nn.Module, machine: Machine) -> Iterator[Callable[..., Any]]:
    """Give the module's uncompiled forward, without dropout and gradients and in the machine's precision.

    The compiled forward is made for the shapes of training; other shapes would each cost a compilation. The mode of
    each of the module's parts is put back at the end.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    autocast = torch.autocast(machine.device.type, dtype=torch.bfloat16, enabled=machine.precision == "bf16")
    try:
        with torch.no_grad(), autocast:
            yield module.forward
    finally:
        for part, was_training in modes:  # one by one: a frozen part of a model in training is not in training
            part.training = was_training
