"""Optimizers built from their configuration."""

from __future__ import annotations

import torch
from torch import nn

from bertline.training.config import OptimizerConfig

_FUSED_DEVICES = ("cpu", "cuda", "mps")


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW over all trainable weights of `model`, which is already on its device.

    Matrices decay; vectors (biases, LayerNorm's scale and shift) do not, as in the reference code's
    `exclude_from_weight_decay`. The update is fused into one kernel where PyTorch has one.

    References:
        AdamW, arXiv 1711.05101, algorithm 2.
    """
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=all(weight.device.type in _FUSED_DEVICES for weight in weights),
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every parameter group the learning rate of the step that is about to be taken."""
    for group in optimizer.param_groups:
        group["lr"] = lr
