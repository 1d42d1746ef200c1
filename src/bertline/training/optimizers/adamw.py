"""AdamW, in one fused kernel where PyTorch has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bertline.training.optimizers.base import AdamSettings

if TYPE_CHECKING:
    import torch
    from torch import nn

    from bertline.training.devices import Precision


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamWConfig(AdamSettings):
    """AdamW (arXiv 1711.05101)."""

    kind: Literal["adamw"]

    def build(self, model: nn.Module, *, precision: Precision = "fp32") -> torch.optim.AdamW:
        """See `OptimizerSettings.build`."""
        import torch

        from bertline.training.optimizers.weights import can_fuse, groups_by_decay

        groups = groups_by_decay(model, self.weight_decay)
        weights = [weight for group in groups for weight in group["params"]]
        return torch.optim.AdamW(
            groups, lr=self.lr, betas=(self.beta1, self.beta2), eps=self.eps, fused=can_fuse(weights)
        )
