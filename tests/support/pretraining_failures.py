"""Ways to make a tiny pretraining go wrong. Each patches the process it is called in, until the end or a monkeypatch's.

They are importable, so that `pretraining_processes` can hand them to a process of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from bertline.pretraining.data import StepBatch, StepDataset
from bertline.pretraining.module import PreTrainingLosses, PretrainingModule


class Patch(Protocol):
    """`setattr`, or a monkeypatch's."""

    def __call__(self, owner: Any, name: str, value: Any, /) -> None: ...


def poison(*ranges: tuple[int, int], patch: Patch = setattr) -> None:
    """Let the loss be NaN whenever a step takes one of the examples at these positions of the order."""
    make, take = StepDataset.__getitem__, PretrainingModule.training_step

    def marked(dataset: StepDataset, step: int) -> StepBatch:
        place = dataset.plan.place(step)
        taken = range(place.consumed, place.consumed + place.global_batch_size)
        poisoned = any(max(taken.start, first) < min(taken.stop, end) for first, end in ranges)
        return {**make(dataset, step), "poisoned": poisoned}  # type: ignore[typeddict-unknown-key, return-value]

    def poisoned(module: PretrainingModule, batch: StepBatch, batch_idx: int) -> None:
        with _losses_times(math.nan if batch["poisoned"] else 1.0):  # type: ignore[typeddict-item]
            take(module, batch, batch_idx)

    patch(StepDataset, "__getitem__", marked)
    patch(PretrainingModule, "training_step", poisoned)


def poisoned(*ranges: tuple[int, int]) -> Callable[[], None]:
    """For `pretraining_processes.start`."""
    return functools.partial(poison, *ranges)


def fail_at_step(step: int, *, patch: Patch = setattr) -> None:
    """Let the loss of one step be NaN, whatever it is computed from, each time that it is taken."""
    take = PretrainingModule.training_step

    def failing(module: PretrainingModule, batch: StepBatch, batch_idx: int) -> None:
        with _losses_times(math.nan if module.finished_steps == step else 1.0):
            take(module, batch, batch_idx)

    patch(PretrainingModule, "training_step", failing)


def corrupt_weights(step: int, *, patch: Patch = setattr) -> None:
    """Add noise to all weights before a step is taken, once."""
    take = PretrainingModule.training_step
    done = []

    def corrupting(module: PretrainingModule, batch: StepBatch, batch_idx: int) -> None:
        if module.finished_steps == step and not done:
            done.append(step)
            generator = torch.Generator().manual_seed(step)
            with torch.no_grad():
                for weight in module.parameters():
                    weight.add_(torch.randn(weight.shape, generator=generator))
        take(module, batch, batch_idx)

    patch(PretrainingModule, "training_step", corrupting)


@contextmanager
def _losses_times(factor: float) -> Iterator[None]:
    """Within the block, the losses of the model are multiplied."""
    forward = PreTrainingLosses.forward

    def multiplied(losses: PreTrainingLosses, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        sums = forward(losses, *args, **kwargs)
        return {name: value * factor if name.endswith("_loss") else value for name, value in sums.items()}

    PreTrainingLosses.forward = multiplied  # type: ignore[method-assign]
    try:
        yield
    finally:
        PreTrainingLosses.forward = forward  # type: ignore[method-assign]
