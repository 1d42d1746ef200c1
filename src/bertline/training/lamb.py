"""LAMB: AdamW with each matrix's update scaled to the norm of the matrix, for batches of thousands of sequences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bertline.training.groupwise import GroupwiseOptimizer


class Lamb(GroupwiseOptimizer):
    """LAMB (arXiv 1904.00962, algorithm 2) with the identity for phi, in foreach operations.

    The averages have the dtype of the weights (fp32 in bertline, whatever the precision of the matrix products).
    Nothing is read back from the device: the step count for bias correction includes skipped steps (`found_inf`), so
    after a skipped step the correction is one step ahead; the difference is gone after about 1 / (1 - beta2) steps.

    Args:
        params: Parameter groups with `weight_decay`; `adapted`, whether the update is scaled to the norm of the weight
            (False is plain Adam, for biases and LayerNorm, as in the paper's code); and `num_matrices`, the number of
            matrices of equal shape stacked along the rows of each weight of the group: each is scaled to its own norm.
        lr: Learning rate.
        betas: Decay rates of the average gradient and of the average squared gradient.
        eps: Added to the square root of the average squared gradient.
    """

    def __init__(self, params: Any, *, lr: float, betas: tuple[float, float], eps: float) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "adapted": True, "num_matrices": 1}
        super().__init__(params, defaults)

    def _first_state(self, group: dict[str, Any], weight: Tensor) -> dict[str, Any]:
        return {"step": 0, "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        updates = self._adam_updates(group, weights)
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        if group["adapted"]:
            _give_lengths(updates, weights, group["num_matrices"])
        torch._foreach_add_(weights, updates, alpha=-group["lr"])

    def _adam_updates(self, group: dict[str, Any], weights: list[Tensor]) -> list[Tensor]:
        """Update the averages and return m / (sqrt(v) + eps), bias-corrected."""
        states = [self.state[weight] for weight in weights]
        for state in states:
            state["step"] += 1
        averages, squares = [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states]
        gradients = [weight.grad for weight in weights]
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(averages, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, [(1 - beta2 ** state["step"]) ** 0.5 for state in states])
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(averages, roots)
        torch._foreach_div_(updates, [1 - beta1 ** state["step"] for state in states])
        return list(updates)


def _give_lengths(updates: list[Tensor], weights: list[Tensor], num_matrices: int) -> None:
    """Scale the update of each matrix in place to the L2 norm of the matrix, unless either norm is zero."""
    matrices = [matrix for weight in weights for matrix in weight.chunk(num_matrices)]
    parts = [part for update in updates for part in update.chunk(num_matrices)]
    lengths, found = torch.stack(torch._foreach_norm(matrices)), torch.stack(torch._foreach_norm(parts))
    ratios = torch.where((lengths > 0) & (found > 0), lengths / found, 1.0)
    torch._foreach_mul_(parts, list(ratios.unbind()))
