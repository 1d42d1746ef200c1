"""Muon: matrices are updated by their momentum with all its singular values near one, other weights by AdamW.

`torch.optim.Muon` is not used: it treats fused query, key and value as one matrix, updates the matrices one by one, and
always computes in bf16, which a CPU without bf16 instructions emulates.
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
# raises small singular values fastest, and the number of iterations.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_NUM_ITERATIONS = 5
_EPS = 1e-7
# arXiv 2502.16982, section 2.2: scales an update to the root mean square of AdamW's updates.
_ADAMW_SIZE = 0.2


class Muon(GroupwiseOptimizer):
    """Muon with Nesterov momentum for `orthogonal` groups, AdamW for the others. Nothing is read back from the device.

    Args:
        params: Parameter groups with `weight_decay` and `orthogonal`; orthogonal ones also have `num_matrices`, the
            number of matrices of equal shape stacked along the rows of each weight: each is orthogonalised separately.
        momentum: Decay rate of the sum of gradients of `orthogonal` groups; `betas` and `eps` are AdamW's.

    References:
        Jordan et al. (2024): the algorithm; Liu et al., arXiv 2502.16982, section 2.2: weight decay and size of the
        update; arXiv 1711.05101, algorithm 2: AdamW.
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
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps, "weight_decay": 0.0}
        super().__init__(params, defaults)
        self._dtype = dtype

    def _first_state(self, group: dict[str, Any], weight: Tensor) -> dict[str, Any]:
        if group["orthogonal"]:
            return {"momentum_buffer": torch.zeros_like(weight)}
        step = torch.zeros((), device=weight.device)  # there, because the fused kernel can skip a step
        return {"step": step, "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}

    def _update_all(self, groups: list[tuple[dict[str, Any], list[Tensor]]]) -> None:
        by_shape: dict[torch.Size, list[_Matrix]] = {}
        for group, weights in groups:
            if group["orthogonal"]:
                for matrix in self._matrices(group, weights):
                    by_shape.setdefault(matrix.direction.shape, []).append(matrix)
            else:
                self._update(group, weights)
        # Matrices of equal shape are updated together, across groups: a few large products cost less than many small.
        for matrices in by_shape.values():
            _update_by_muon(matrices, self._dtype, self._taken)

    def _matrices(self, group: dict[str, Any], weights: list[Tensor]) -> Iterator[_Matrix]:
        """Add the gradients to the momentum, apply weight decay and yield each matrix with its direction."""
        gradients = [weight.grad for weight in weights]
        sums = [self.state[weight]["momentum_buffer"] for weight in weights]
        torch._foreach_mul_(sums, self._one_if_skipped(group["momentum"]))
        torch._foreach_add_(sums, gradients)
        directions = torch._foreach_add(gradients, sums, alpha=group["momentum"])
        torch._foreach_mul_(weights, self._one_if_skipped(1 - group["lr"] * group["weight_decay"]))
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
            fused=True,
            found_inf=self._skipped,
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
    """View of a weight, updated in place."""
    direction: Tensor
    """Nesterov momentum, to be orthogonalised."""
    rate: float
    """Step size for an update with singular values of one."""


def _update_by_muon(matrices: list[_Matrix], dtype: torch.dtype, taken: Tensor | None) -> None:
    """Update matrices of one shape against their orthogonalised directions, unless `taken` is 0."""
    updates = orthogonalised(torch.stack([matrix.direction for matrix in matrices]), dtype)
    updates = updates.to(matrices[0].weight.dtype)
    if taken is not None:
        updates.mul_(taken)
    parts = updates.unbind()
    for rate in dict.fromkeys(matrix.rate for matrix in matrices):
        chosen = [index for index, matrix in enumerate(matrices) if matrix.rate == rate]
        torch._foreach_add_([matrices[index].weight for index in chosen], [parts[i] for i in chosen], alpha=-rate)


def orthogonalised(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Move all singular values of each matrix near one (most to between 0.7 and 1.2), keeping its singular vectors.

    Five Newton-Schulz iterations apply a quintic, s -> 3.4445 s - 4.775 s^3 + 2.0315 s^5, to each singular value s.

    Args:
        matrices: Matrices [n, rows, columns]; the result has their shape, and is in `dtype`.

    References:
        Jordan et al. (2024).
    """
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    wide = matrices.mT if is_tall else matrices  # the smaller of the two Gram matrices is the cheaper one
    # With a Frobenius norm of one, no singular value is above one.
    wide = (wide / (wide.norm(dim=(-2, -1), keepdim=True) + _EPS)).to(dtype)
    first, third, fifth = _QUINTIC
    # Under autocast, fp32 products would silently be computed in bf16.
    with torch.autocast(matrices.device.type, enabled=False):
        for _ in range(_NUM_ITERATIONS):
            gram = wide @ wide.mT
            rest = torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)
            wide = torch.baddbmm(wide, rest, wide, beta=first)
    return wide.mT if is_tall else wide
