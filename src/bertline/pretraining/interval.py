"""What is summed up between two rows of metrics.jsonl."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bertline.pretraining.losses import PreTrainingSums
from bertline.training.distributed import sum_over_ranks

_DEVICE_SUMS = ("mlm_loss", "nsp_loss", "mlm_correct", "nsp_correct", "grad_norm")
_HOST_SUMS = ("steps", "targets", "sequences", "tokens")


class IntervalSums:
    """Sums of losses, hits and counts since the last row.

    What the model computes stays on the device: waiting for it in each step would leave the device idle.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._on_device = torch.zeros(len(_DEVICE_SUMS), device=device)
        self._on_host = dict.fromkeys(_HOST_SUMS, 0.0)

    @property
    def tokens(self) -> float:
        """Real tokens, padding not counted, that this rank has seen since the last row."""
        return self._on_host["tokens"]

    def add_micro_batch(self, sums: PreTrainingSums) -> None:
        """Add what the model gave for one micro-batch."""
        self._on_device[:4] += torch.stack([sums.mlm_loss, sums.nsp_loss, sums.mlm_correct, sums.nsp_correct]).detach()

    def add_step(self, *, grad_norm: Tensor, targets: int, sequences: int, tokens: int) -> None:
        """Add what belongs to this rank's share of a whole step; the norm is the same on all ranks."""
        self._on_device[4] += grad_norm
        for name, value in zip(_HOST_SUMS, (1, targets, sequences, tokens), strict=True):
            self._on_host[name] += value

    def total(self) -> dict[str, float]:
        """The sums over all ranks (of steps and norms: this rank's). Waits for the device."""
        values = [*self._on_device.tolist(), *(self._on_host[name] for name in _HOST_SUMS)]
        names = (*_DEVICE_SUMS, *_HOST_SUMS)
        alone = {"grad_norm": values[names.index("grad_norm")], "steps": self._on_host["steps"]}
        return {**dict(zip(names, sum_over_ranks(values, self.device), strict=True)), **alone}

    def clear(self) -> None:
        """Begin the next interval."""
        self._on_device.zero_()
        self._on_host = dict.fromkeys(_HOST_SUMS, 0.0)

    def restore(self, total: dict[str, Any], *, is_first_rank: bool) -> None:
        """Go on from the `total` of a checkpoint: the first rank carries the sums of all."""
        self.clear()
        self._on_device[4] = total["grad_norm"]
        self._on_host["steps"] = total["steps"]
        if is_first_rank:
            self._on_device[:4] = torch.tensor([total[name] for name in _DEVICE_SUMS[:4]])
            self._on_host.update({name: total[name] for name in _HOST_SUMS})


def training_metrics(total: dict[str, float], *, nsp_weight: float) -> dict[str, float]:
    """Means over the targets, sequences and steps of an interval.

    >>> sums = {"mlm_loss": 12.0, "mlm_correct": 1.0, "targets": 4.0, "nsp_loss": 1.0, "nsp_correct": 2.0,
    ...         "sequences": 2.0, "grad_norm": 3.0, "steps": 2.0, "tokens": 30.0}
    >>> training_metrics(sums, nsp_weight=1.0)["train/loss"]
    3.5
    """
    mlm_loss, nsp_loss = total["mlm_loss"] / total["targets"], total["nsp_loss"] / total["sequences"]
    return {
        "train/loss": mlm_loss + nsp_weight * nsp_loss,
        "train/mlm_loss": mlm_loss,
        "train/nsp_loss": nsp_loss,
        "train/mlm_accuracy": total["mlm_correct"] / total["targets"],
        "train/nsp_accuracy": total["nsp_correct"] / total["sequences"],
        "optim/grad_norm": total["grad_norm"] / total["steps"],
    }
