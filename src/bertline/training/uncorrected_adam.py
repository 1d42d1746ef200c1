"""The optimizer of BERT's reference code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bertline.training.groupwise import GroupwiseOptimizer


class AdamWithoutBiasCorrection(GroupwiseOptimizer):
    """AdamW without bias correction.

    The averages start at zero. Without correction, the first steps are too long by a factor of up to
    (1 - beta1) / sqrt(1 - beta2), which makes fine-tuning on small data sets unstable (arXiv 2006.05987, section 4).
    This optimizer exists to reproduce old results.

    Args:
        params: Weights, or parameter groups with `weight_decay`.
        lr: Learning rate.
        betas: Decay rates of the average gradient and of the average squared gradient.
        eps: Added to the square root of the average squared gradient.

    References:
        google-research/bert `optimization.py`, `AdamWeightDecayOptimizer`.
    """

    def __init__(self, params: Any, *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    def _first_state(self, group: dict[str, Any], weight: Tensor) -> dict[str, Any]:
        return {"exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        gradients = [weight.grad for weight in weights]
        averages, squares = ([self.state[weight][name] for weight in weights] for name in ("exp_avg", "exp_avg_sq"))
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(averages, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        updates = torch._foreach_sqrt(squares)
        torch._foreach_add_(updates, group["eps"])
        updates = torch._foreach_div(averages, updates)
        torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        torch._foreach_add_(weights, updates, alpha=-group["lr"])
