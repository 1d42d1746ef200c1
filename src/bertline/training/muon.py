"""Muon: matrices are updated by their momentum with all its singular values made about one; the rest by AdamW.

`torch.optim.Muon` is not used: it takes a fused query, key and value for one matrix, goes through the matrices one by
one, and always computes in bf16, which a CPU without the instructions emulates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

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

    def _first_state(self, group: dict[str, Any], weight: Tensor) -> dict[str, Any]:
        if group["orthogonal"]:
            return {"momentum_buffer": torch.zeros_like(weight)}
        # The fused kernel counts on the device of the weight, the others on the CPU.
        step = torch.zeros((), device=weight.device if group["fused"] else torch.device("cpu"))
        return {"step": step, "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}

    def _update_all(self, groups: list[tuple[dict[str, Any], list[Tensor]]]) -> None:
        by_shape: dict[torch.Size, list[_Matrix]] = {}
        for group, weights in groups:
            if group["orthogonal"]:
                for matrix in self._matrices(group, weights):
                    by_shape.setdefault(matrix.direction.shape, []).append(matrix)
            else:
                self._update(group, weights)
        # Whatever group they are of: few large products cost less than many small ones.
        for matrices in by_shape.values():
            _update_by_muon(matrices, self._dtype)

    def _matrices(self, group: dict[str, Any], weights: list[Tensor]) -> Iterator[_Matrix]:
        """Put the gradients into the momentum, let the weights decay and say where each matrix is to go."""
        gradients = [weight.grad for weight in weights]
        sums = [self.state[weight]["momentum_buffer"] for weight in weights]
        torch._foreach_mul_(sums, group["momentum"])
        torch._foreach_add_(sums, gradients)
        directions = torch._foreach_add(gradients, sums, alpha=group["momentum"])
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        for weight, direction in zip(weights, directions, strict=True):
            rows, columns = weight.shape[0] // group["num_matrices"], weight.shape[1]
            rate = group["lr"] * _ADAMW_SIZE * math.sqrt(max(rows, columns))
            for matrix, part in zip(weight.split(rows), direction.split(rows), strict=True):
                yield _Matrix(matrix, part, rate) if rows <= columns else _Matrix(matrix.mT, part.mT, rate)

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        states = [self.state[weight] for weight in weights]
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


class _Matrix(NamedTuple):
    """A matrix, or its transpose, with no more rows than columns."""

    weight: Tensor
    """A part of a weight, to be changed in place."""
    direction: Tensor
    """Where the momentum points."""
    rate: float
    """How far to go for singular values of one."""


def _update_by_muon(matrices: list[_Matrix], dtype: torch.dtype) -> None:
    """Move matrices of one shape against their directions, made orthogonal."""
    updates = orthogonalised(torch.stack([matrix.direction for matrix in matrices]), dtype)
    parts = updates.to(matrices[0].weight.dtype).unbind()
    for rate in dict.fromkeys(matrix.rate for matrix in matrices):
        chosen = [index for index, matrix in enumerate(matrices) if matrix.rate == rate]
        torch._foreach_add_([matrices[index].weight for index in chosen], [parts[i] for i in chosen], alpha=-rate)


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
