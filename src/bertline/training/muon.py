"""Muon: matrices are updated by their momentum with all its singular values made about one; the rest by AdamW.

`torch.optim.Muon` is not used: it takes a fused query, key and value for one matrix, goes through the matrices one by
one, and always computes in bf16, which a CPU without the instructions emulates.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from bertline.training.groupwise import GroupwiseOptimizer

# Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024): coefficients of the quintic that
# lifts small singular values fastest, and how often it is applied.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_NUM_ITERATIONS = 5
_EPS = 1e-7
# arXiv 2502.16982, section 2.2: gives an update the root mean square that those of AdamW have.
_ADAMW_SIZE = 0.2


class Muon(GroupwiseOptimizer):
    """Muon with Nesterov momentum for groups with `orthogonal`, AdamW for the others. Nothing is read back.

    Args:
        params: Groups with `weight_decay` and `orthogonal`; those that are have `num_matrices`, of how many matrices
            of equal shape, one below the other, each weight of the group consists: each is orthogonalised by itself.
        lr: Learning rate; a group's `rate_factor` is its share of it.
        momentum: Decay of the sum of gradients.
        betas: AdamW's.
        eps: AdamW's.
        dtype: In which the orthogonalisation multiplies matrices.
        fused: Whether AdamW updates all weights in one kernel.

    References:
        Jordan et al. (2024), the algorithm; Liu et al., arXiv 2502.16982, section 2.2, decay and size of the update;
        arXiv 1711.05101, algorithm 2, AdamW.
    """

    def __init__(
        self,
        params: Any,
        *,
        lr: float,
        momentum: float,
        betas: tuple[float, float],
        eps: float,
        dtype: torch.dtype,
        fused: bool,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps, "weight_decay": 0.0, "fused": fused}
        super().__init__(params, defaults)
        self._dtype = dtype

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        if group["orthogonal"]:
            self._update_by_muon(group, weights)
        else:
            self._update_by_adamw(group, weights)

    def _update_by_muon(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        gradients = [weight.grad for weight in weights]
        sums = [self.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight)) for weight in weights]
        torch._foreach_mul_(sums, group["momentum"])
        torch._foreach_add_(sums, gradients)
        directions = torch._foreach_add(gradients, sums, alpha=group["momentum"])
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        num_matrices = group["num_matrices"]
        by_shape: dict[torch.Size, tuple[list[Tensor], list[Tensor]]] = {}
        for weight, direction in zip(weights, directions, strict=True):
            matrices, parts = by_shape.setdefault(weight.shape, ([], []))
            matrices.extend(weight.chunk(num_matrices))
            parts.extend(direction.chunk(num_matrices))
        for matrices, parts in by_shape.values():
            updates = orthogonalised(torch.stack(parts), self._dtype).to(matrices[0].dtype)
            size = _ADAMW_SIZE * math.sqrt(max(matrices[0].shape))
            torch._foreach_add_(matrices, list(updates.unbind()), alpha=-group["lr"] * size)

    def _update_by_adamw(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        states = [self.state[weight] for weight in weights]
        for state, weight in zip(states, weights, strict=True):
            if not state:
                # The fused kernel counts on the device of the weight, the others on the CPU.
                device = weight.device if group["fused"] else torch.device("cpu")
                state.update(step=torch.zeros((), device=device))
                state.update(exp_avg=torch.zeros_like(weight), exp_avg_sq=torch.zeros_like(weight))
        beta1, beta2 = group["betas"]
        adamw(
            weights,
            [weight.grad for weight in weights if weight.grad is not None],
            *([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq")),
            [],
            [state["step"] for state in states],
            fused=group["fused"],
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def orthogonalised(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Move all singular values of each matrix near one (most to between 0.7 and 1.2) and leave its directions.

    Five Newton-Schulz iterations of a quintic, s -> 3.4445 s - 4.775 s^3 + 2.0315 s^5 on each singular value s.

    Args:
        matrices: [n, rows, columns].
        dtype: Of the products.

    Returns:
        The same shape, in `dtype`.

    References:
        Jordan et al. (2024).
    """
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    wide = matrices.mT if is_tall else matrices  # the smaller of the two Gram matrices is the cheaper one
    # With the Frobenius norm one, no singular value is above one.
    wide = (wide / (wide.norm(dim=(-2, -1), keepdim=True) + _EPS)).to(dtype)
    first, third, fifth = _QUINTIC
    # Under autocast, fp32 products would be made in bf16 behind our back.
    with torch.autocast(matrices.device.type, enabled=False):
        for _ in range(_NUM_ITERATIONS):
            gram = wide @ wide.mT
            rest = torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)
            wide = torch.baddbmm(wide, rest, wide, beta=first)
    return wide.mT if is_tall else wide
