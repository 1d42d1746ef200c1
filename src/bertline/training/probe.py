"""Measurements during training, the probes, and a model in evaluation mode for them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from bertline.training.devices import Machine, sum_over_ranks


class Probe(Protocol):
    """Measurement before the first step, every `every_steps` steps, and after the last step.

    A probe must not change the model, its mode or the course of training. Probes run on every rank in the same order,
    so they may communicate; only the first rank should write files.
    """

    every_steps: int

    def probe(self, step: int) -> Mapping[str, float]:
        """Measure after `step` finished steps. The returned metrics are written to metrics.jsonl under that step."""

    def keep_up_to(self, step: int) -> None:
        """Drop the probe's own records after `step`: training resumes from there and creates them again."""
        return  # most probes keep none


def is_due(probe: Probe, step: int, num_steps: int) -> bool:
    """Return whether a probe must run after `step` finished steps of `num_steps`."""
    return step % probe.every_steps == 0 or step == num_steps


@dataclass
class DueProbes:
    """Finds the probes that must run after a step: at their cadence in steps, and not too often by the clock."""

    probes: Sequence[Probe]
    num_steps: int
    """Number of steps of the run; after the last one all probes run."""
    every_s: float | None
    """Smallest number of seconds between two measurements of a probe; None: the cadence in steps alone counts."""
    machine: Machine
    now: Callable[[], float] = time.monotonic
    """Time in seconds; that of the first rank counts."""
    _measured_at: dict[int, float] = field(default_factory=dict)

    def after(self, step: int) -> list[Probe]:
        """Return the probes to run now; the same ones on every rank. All ranks call it after every step."""
        due = [index for index, probe in enumerate(self.probes) if is_due(probe, step, self.num_steps)]
        if due and self.every_s is not None and step < self.num_steps:
            first, now = self.machine.ranks.is_first, self.now()
            is_long_ago = [first and now - self._measured_at.get(index, -math.inf) >= self.every_s for index in due]
            agreed = sum_over_ranks(is_long_ago, self.machine.device)
            due = [index for index, is_agreed in zip(due, agreed, strict=True) if is_agreed]
        self._measured_at.update(dict.fromkeys(due, self.now()))
        return [self.probes[index] for index in due]


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
