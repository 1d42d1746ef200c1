"""What is summed up between two rows of metrics.jsonl."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from bertline.pretraining.losses import PreTrainingSums
from bertline.training.distributed import sum_over_ranks

LOG_EVERY_STEPS = 20
"""Steps that one row tells of."""

_DEVICE_SUMS = ("mlm_loss", "nsp_loss", "mlm_correct", "nsp_correct", "grad_norm")
_HOST_SUMS = ("targets", "sequences", "tokens")
_STEP_SUMS = ("steps", "skipped_steps")
_TIMED_SUMS = ("timed_tokens", "timed_targets", "timed_pairs")
"""What speed is taken from, skipped steps too: 0 from a checkpoint that knows no seconds, from before these were."""
_ALIKE = ("grad_norm", *_STEP_SUMS)
"""What every rank counts for itself, and counts the same."""


class IntervalSums:
    """Sums of losses, hits and counts since the last row.

    What the model computes stays on the device: waiting for it in each step would leave the device idle. A step whose
    gradient norm is not finite is skipped by the optimizer; it is counted here, and its losses are left out.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._step: Tensor | None = None
        self._pairs: Tensor | None = None
        self.clear()

    @property
    def tokens(self) -> float:
        """Real tokens, padding not counted, that this rank has seen since the last row."""
        return self._before["tokens"] + sum(tokens for *_, tokens in self._on_host)

    def add_pairs(self, micro_batches: Iterable[Mapping[str, Tensor]]) -> None:
        """Count what the tokens of this rank's share of a step attend to; it stays on the device."""
        for micro_batch in micro_batches:
            pairs = num_pairs(micro_batch)
            self._pairs = pairs if self._pairs is None else self._pairs + pairs

    def add_micro_batch(self, sums: PreTrainingSums) -> None:
        """Add what the model gave for one micro-batch."""
        values = torch.stack([sums.mlm_loss, sums.nsp_loss, sums.mlm_correct, sums.nsp_correct]).detach()
        self._step = values if self._step is None else self._step + values

    def add_step(self, *, grad_norm: Tensor, targets: int, sequences: int, tokens: int) -> None:
        """Add what belongs to this rank's share of a whole step; the norm is the same on all ranks."""
        assert self._step is not None  # a step has a micro-batch
        self._on_device.append(torch.cat([self._step, grad_norm.detach().reshape(1)]))
        self._on_host.append((targets, sequences, tokens))
        self._step = None

    def total(self) -> dict[str, float]:
        """The sums over all ranks (of steps and norms: this rank's). Waits for the device.

        Losses, hits, norms, targets and sequences are those of the steps that were not skipped; tokens are all,
        and so is what is timed.
        """
        total = dict(self._before)
        steps = torch.stack(self._on_device).tolist() if self._on_device else []
        for computed, counted in zip(steps, self._on_host, strict=True):
            values = dict(zip((*_DEVICE_SUMS, *_HOST_SUMS), (*computed, *counted), strict=True))
            skipped = not math.isfinite(values["grad_norm"])
            total["steps"] += 1
            total["skipped_steps"] += skipped
            for name in ("tokens",) if skipped else values:
                total[name] += values[name]
            total["timed_tokens"] += values["tokens"]
            total["timed_targets"] += values["targets"]
        total["timed_pairs"] += 0 if self._pairs is None else int(self._pairs)
        of_all_ranks = [name for name in total if name not in _ALIKE]
        summed = sum_over_ranks([total[name] for name in of_all_ranks], self.device)
        return {**total, **dict(zip(of_all_ranks, summed, strict=True))}

    def clear(self) -> None:
        """Begin the next interval."""
        self._before = dict.fromkeys((*_DEVICE_SUMS, *_HOST_SUMS, *_STEP_SUMS, *_TIMED_SUMS), 0.0)
        self._step = self._pairs = None
        self._on_device: list[Tensor] = []
        self._on_host: list[tuple[int, int, int]] = []

    def restore(self, total: dict[str, Any], *, is_first_rank: bool) -> None:
        """Go on from the `total` of a checkpoint: the first rank carries the sums of all."""
        self.clear()
        self._before.update({name: value for name, value in total.items() if is_first_rank or name in _ALIKE})


def num_pairs(micro_batch: Mapping[str, Tensor]) -> Tensor:
    """Tokens that the tokens of a micro-batch can attend to: the squares of its sequences' lengths, summed.

    Args:
        micro_batch: Of `examples.batching` or `examples.packing`, as tensors.

    Returns:
        [] int64, on the device of the micro-batch.

    Example:
        >>> int(num_pairs({"attention_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])}))
        13
    """
    if "position_ids" in micro_batch:
        # n^2 = 1 + 3 + ... + (2 n - 1): twice the position and one for each token; padding has position 0.
        return 2 * micro_batch["position_ids"].sum() + (micro_batch["sequence_ids"] > 0).sum()
    if "attention_mask" in micro_batch:
        return micro_batch["attention_mask"].sum(dim=1).square().sum()
    rows, length = micro_batch["input_ids"].shape  # all of them full
    # Filled in on the device: copying a number there would wait for it.
    return torch.full((), rows * length**2, device=micro_batch["input_ids"].device)


def training_metrics(total: dict[str, float], *, nsp_weight: float) -> dict[str, float]:
    """Means over the targets, sequences and steps of an interval; NaN where all its steps were skipped.

    >>> sums = {"mlm_loss": 12.0, "mlm_correct": 1.0, "targets": 4.0, "nsp_loss": 1.0, "nsp_correct": 2.0,
    ...         "sequences": 2.0, "grad_norm": 3.0, "steps": 3.0, "skipped_steps": 1.0, "tokens": 30.0}
    >>> training_metrics(sums, nsp_weight=1.0)["train/loss"]
    3.5
    """
    targets, sequences, steps = total["targets"], total["sequences"], total["steps"] - total["skipped_steps"]
    mlm_loss, nsp_loss = _mean(total["mlm_loss"], targets), _mean(total["nsp_loss"], sequences)
    return {
        "train/loss": mlm_loss + nsp_weight * nsp_loss,
        "train/mlm_loss": mlm_loss,
        "train/nsp_loss": nsp_loss,
        "train/mlm_accuracy": _mean(total["mlm_correct"], targets),
        "train/nsp_accuracy": _mean(total["nsp_correct"], sequences),
        "optim/grad_norm": _mean(total["grad_norm"], steps),
        "optim/skipped_steps": total["skipped_steps"],
    }


def _mean(total: float, count: float) -> float:
    return total / count if count else math.nan
