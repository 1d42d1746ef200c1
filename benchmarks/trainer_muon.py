"""Muon for the Hugging Face Trainer: `torch.optim.Muon` for the layers' matrices, fused AdamW for all other weights."""

from __future__ import annotations

from typing import Any

import repository_source  # noqa: F401
import torch
from torch import nn

from bertline.training.optimizers import MuonConfig


class MuonAndAdamW(torch.optim.Optimizer):
    """Two PyTorch optimizers as one, because the Trainer and its schedule take a single optimizer.

    The weights are divided between them as in `bertline.training.optimizers`, and learning rates have the same meaning:
    Muon's updates are scaled to the size of AdamW's (arXiv 2502.16982, section 2.2). Vectors have no weight decay.

    Args:
        model: BERT model of transformers.
        config: Learning rates, weight decay, momentum and betas.
    """

    def __init__(self, model: nn.Module, config: MuonConfig) -> None:
        named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
        of_layers = [weight for name, weight in named if ".encoder.layer." in name and weight.ndim == 2]
        chosen = set(map(id, of_layers))
        others = [weight for _, weight in named if id(weight) not in chosen]
        self.muon = torch.optim.Muon(
            of_layers,
            lr=config.lr,
            weight_decay=config.weight_decay,
            momentum=config.momentum,
            adjust_lr_fn="match_rms_adamw",
        )
        self.adamw = torch.optim.AdamW(
            [
                {"params": [weight for weight in others if weight.ndim >= 2], "weight_decay": config.weight_decay},
                {"params": [weight for weight in others if weight.ndim < 2], "weight_decay": 0.0},
            ],
            lr=config.adamw_lr,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            fused=True,
        )
        super().__init__([*self.muon.param_groups, *self.adamw.param_groups], {})

    def step(self, closure: Any = None) -> Any:
        """Take one step with each optimizer."""
        result = None if closure is None else closure()
        # Schedules set the rates of this optimizer's groups, which are copies once accelerate has prepared it.
        scheduled = iter(self.param_groups)
        for optimizer in (self.muon, self.adamw):
            for group, own in zip(optimizer.param_groups, scheduled, strict=False):
                group["lr"] = own["lr"]
        self.muon.step()
        self.adamw.step()
        return result
