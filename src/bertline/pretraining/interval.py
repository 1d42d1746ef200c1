"""Sums accumulated between two rows of metrics.jsonl."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bertline.pretraining.objectives.base import Objective, means, weighted_loss
from bertline.training.devices import sum_over_ranks

LOG_EVERY_STEPS = 20
"""Number of steps per row."""

_HOST_SUMS = ("targets", "sequences", "tokens")
_STEP_SUMS = ("steps", "skipped_steps")
_TIMED_SUMS = ("timed_tokens", "timed_targets", "timed_pairs")
"""Sums for throughput, including skipped steps."""
_ALIKE = ("grad_norm", *_STEP_SUMS)
"""Sums that every rank computes by itself, with the same values on all ranks."""


class IntervalSums:
    """Sums of an objective, and counts, since the last row.

    Model outputs stay on the device: waiting for them in each step would leave the device idle. A step whose gradient
    norm is not finite is skipped by the optimizer; it is counted here, but its losses are left out.
    """

    def __init__(self, device: torch.device, names: Sequence[str]) -> None:
        self.device = device
        self._names = tuple(names)
        self._device_sums = (*self._names, "grad_norm")
        self._step: Tensor | None = None
        self._pairs: Tensor | None = None
        self.clear()

    def add_pairs(self, micro_batches: Iterable[Mapping[str, Tensor]]) -> None:
        """Count the query-key token pairs of this rank's share of a step; the count stays on the device."""
        for micro_batch in micro_batches:
            pairs = num_pairs(micro_batch)
            self._pairs = pairs if self._pairs is None else self._pairs + pairs

    def add_micro_batch(self, sums: Mapping[str, Tensor]) -> None:
        """Add the sums of one micro-batch."""
        values = torch.stack([sums[name] for name in self._names]).detach()
        self._step = values if self._step is None else self._step + values

    def add_step(self, *, grad_norm: Tensor, targets: int, sequences: int, tokens: int) -> None:
        """Finish a step: add the counts of this rank's share, and the gradient norm, which is equal on all ranks."""
        assert self._step is not None  # a step has a micro-batch
        self._on_device.append(torch.cat([self._step, grad_norm.detach().reshape(1)]))
        self._on_host.append((targets, sequences, tokens))
        self._step = None

    def total(self) -> dict[str, float]:
        """Return the sums over all ranks (for steps and norms: of this rank). Waits for the device.

        The sums of the objective, norms and counts exclude skipped steps; the `timed_*` sums include them.
        """
        total = dict(self._before)
        steps = torch.stack(self._on_device).tolist() if self._on_device else []
        for computed, counted in zip(steps, self._on_host, strict=True):
            values = dict(zip((*self._device_sums, *_HOST_SUMS), (*computed, *counted), strict=True))
            skipped = not math.isfinite(values["grad_norm"])
            total["steps"] += 1
            total["skipped_steps"] += skipped
            for name in () if skipped else values:
                total[name] += values[name]
            total["timed_tokens"] += values["tokens"]
            total["timed_targets"] += values["targets"]
        total["timed_pairs"] += 0 if self._pairs is None else int(self._pairs)
        of_all_ranks = [name for name in total if name not in _ALIKE]
        summed = sum_over_ranks([total[name] for name in of_all_ranks], self.device)
        return {**total, **dict(zip(of_all_ranks, summed, strict=True))}

    def clear(self) -> None:
        """Start the next interval."""
        self._before = dict.fromkeys((*self._device_sums, *_HOST_SUMS, *_STEP_SUMS, *_TIMED_SUMS), 0.0)
        self._step = self._pairs = None
        self._on_device: list[Tensor] = []
        self._on_host: list[tuple[int, int, int]] = []

    def restore(self, total: dict[str, Any], *, is_first_rank: bool) -> None:
        """Resume from the `total` of a checkpoint: the first rank carries the sums of all ranks."""
        self.clear()
        self._before.update({name: value for name, value in total.items() if is_first_rank or name in _ALIKE})


def num_pairs(micro_batch: Mapping[str, Tensor]) -> Tensor:
    """Return the number [] of query-key pairs of a micro-batch: the sum of the squared sequence lengths.

    Example:
        >>> int(num_pairs({"lengths": torch.tensor([3, 2])}))
        13
    """
    if "lengths" in micro_batch:
        return micro_batch["lengths"].long().square().sum()
    rows, length = micro_batch["input_ids"].shape  # all rows are full
    # `full` runs on the device: copying a number from the host would wait for the device.
    return torch.full((), rows * length**2, device=micro_batch["input_ids"].device)


def training_metrics(total: dict[str, float], objective: Objective) -> dict[str, float]:
    """Return the loss and the means of an interval; NaN if all its steps were skipped."""
    of_objective, steps = means(objective, total), total["steps"] - total["skipped_steps"]
    return {
        "train/loss": weighted_loss(objective, of_objective),
        **{f"train/{name}": mean for name, mean in of_objective.items()},
        "optim/grad_norm": total["grad_norm"] / steps if steps else math.nan,
        "optim/skipped_steps": total["skipped_steps"],
    }
