"""Muon, and what all optimizers have in common: clipping, and when a step is skipped.

`torch.optim.Muon` is not used: it treats fused query, key and value as one matrix, updates the matrices one by one, and
always computes in bf16, which a CPU without bf16 instructions emulates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

# Integers of as many bytes as an element.
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
# Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024): coefficients of the quintic that
# raises small singular values fastest, and the number of iterations.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_NUM_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum for `orthogonal` groups, AdamW for the others. Nothing is read back from the device.

    A skipped step leaves weights and state unchanged (up to the sign of a zero) without a copy of them: the gradients
    become zeros, and each factor that would still change a tensor is 1, or 0 where it scales an update (it would follow
    the old averages at full size). In other steps, these operations change no bit.

    Args:
        params: Parameter groups with `weight_decay` and `orthogonal`; orthogonal ones also have `num_matrices`, the
            number of matrices of equal shape stacked along the rows of each weight: each is orthogonalised separately.
        momentum: Decay rate of the sum of gradients of `orthogonal` groups; `betas` and `eps` are AdamW's.

    References: Jordan et al. (2024): the algorithm; Liu et al., arXiv 2502.16982, section 2.2: weight decay and size of
    the update; arXiv 1711.05101, algorithm 2: AdamW.
    """

    def __init__(
        self, params: Any, *, lr: float, momentum: float, betas: tuple[float, float], eps: float, dtype: torch.dtype
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps, "weight_decay": 0.0}
        super().__init__(params, defaults)
        self._dtype = dtype
        self.found_inf: Tensor | None = None
        """Scalar on the device of the weights: the next step is skipped unless it is zero. None: the step is taken.
        PyTorch's fused optimizers have an attribute of this name and meaning."""
        # Within a step, on the device: 1.0, or 0.0 in a skipped step; None if the step is certainly taken.
        self._taken: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step with the gradients of the weights; a weight without one is not changed."""
        with torch.enable_grad():
            result = None if closure is None else closure()
        groups = self._with_gradients()
        self._taken = None
        if self.found_inf is not None:
            self._taken = 1 - (self.found_inf != 0).float()
            _zero_unless(self._taken, [weight.grad for _, weights in groups for weight in weights])
        by_shape: dict[torch.Size, list[_Matrix]] = {}
        for group, weights in groups:
            if group["orthogonal"]:
                for matrix in self._matrices(group, weights):
                    by_shape.setdefault(matrix.direction.shape, []).append(matrix)
            else:
                self._update_by_adamw(group, weights)
        # Matrices of equal shape are updated together, across groups: a few large products cost less than many small.
        for matrices in by_shape.values():
            _update_by_muon(matrices, self._dtype, self._taken)
        return result

    def _with_gradients(self) -> list[tuple[dict[str, Any], list[Tensor]]]:
        """Return the groups with their weights that have a gradient, each with a state, made before its first step."""
        groups = []
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            for weight in weights:
                if not self.state[weight]:
                    self.state[weight].update(self._first_state(group, weight))
            if weights:
                groups.append((group, weights))
        return groups

    def _first_state(self, group: dict[str, Any], weight: Tensor) -> dict[str, Any]:
        if group["orthogonal"]:
            return {"momentum_buffer": torch.zeros_like(weight)}
        step = torch.zeros((), device=weight.device)  # there, because the fused kernel can skip a step
        return {"step": step, "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}

    def _one_if_skipped(self, factor: float) -> Tensor | float:
        return factor if self._taken is None else self._taken * factor + (1 - self._taken)

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
            # arXiv 2502.16982, section 2.2: scales an update to the root mean square of AdamW's updates.
            rate = group["lr"] * 0.2 * math.sqrt(max(rows, columns))
            for matrix, part in zip(weight.split(rows), direction.split(rows), strict=True):
                yield _Matrix(matrix, part, rate) if rows <= columns else _Matrix(matrix.mT, part.mT, rate)

    def _update_by_adamw(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        states = [self.state[weight] for weight in weights]
        beta1, beta2 = group["betas"]
        adamw(
            weights,
            [weight.grad for weight in weights if weight.grad is not None],
            *([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq")),
            [],
            [state["step"] for state in states],
            fused=True,
            found_inf=None if self._taken is None else 1 - self._taken,
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


def _zero_unless(taken: Tensor, gradients: Iterable[Tensor | None]) -> None:
    """Replace gradients by zeros unless `taken` is 1: as integers, because 0 times NaN is NaN."""
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for gradient in gradients:
        if gradient is not None:
            bits = _BITS[gradient.element_size()]
            by_dtype.setdefault(bits, []).append(gradient.view(bits))
    for dtype, numbers in by_dtype.items():
        torch._foreach_mul_(numbers, taken.to(dtype))


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

    Reference: Jordan et al. (2024).
    """
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    wide = matrices.mT if is_tall else matrices  # the smaller of the two Gram matrices is the cheaper one
    # With a Frobenius norm of one, no singular value is above one.
    wide = (wide / (wide.norm(dim=(-2, -1), keepdim=True) + 1e-7)).to(dtype)
    first, third, fifth = _QUINTIC
    # Under autocast, fp32 products would silently be computed in bf16.
    with torch.autocast(matrices.device.type, enabled=False):
        for _ in range(_NUM_ITERATIONS):
            gram = wide @ wide.mT
            rest = torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)
            wide = torch.baddbmm(wide, rest, wide, beta=first)
    return wide.mT if is_tall else wide


def skip_unless_finite(optimizer: torch.optim.Optimizer, grad_norm: Tensor) -> None:
    """Skip the next step of an optimizer of `OptimizerSettings.build` if the norm of its gradients is infinite or NaN.

    Weights and optimizer averages then stay bitwise unchanged. This is decided on the device of the scalar `grad_norm`:
    nothing is read back. AdamW (PyTorch's fused kernels take `found_inf`, made for loss scaling) and Muon's AdamW do
    not count a skipped step in their bias correction.
    """
    if not (hasattr(optimizer, "found_inf") or optimizer.defaults.get("fused")):
        raise TypeError(f"{type(optimizer).__name__} cannot skip a step: it has no found_inf and is not fused")
    is_bad = grad_norm.lt(math.inf).logical_not()  # NaN is not less than anything
    # On the CPU there is nothing to wait for, and a good step need not be guarded.
    taken = is_bad.device.type == "cpu" and not is_bad
    optimizer.found_inf = None if taken else is_bad.float()  # type: ignore[attr-defined]


@contextmanager
def keeping_state(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Undo what a skipped step within the block does to an optimizer: the first one makes the state."""
    before = {weight for weight, state in optimizer.state.items() if state}
    try:
        yield
    finally:
        for weight in [*optimizer.state]:
            if weight not in before:
                del optimizer.state[weight]


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of the next step in every parameter group: `lr` times the group's `rate_factor`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("rate_factor", 1.0)


def clip_gradients(weights: Iterable[nn.Parameter], largest: float | None) -> Tensor:
    """Clip the gradients to a global norm of at most `largest` (None: no clipping); return the norm before clipping.

    The result is bitwise that of PyTorch's `clip_grad_norm_`, which multiplies by 1 if there is nothing to clip: on the
    CPU that pass over all gradients is skipped; elsewhere, finding out would mean waiting for the device.
    """
    clipped = [weight for weight in weights if weight.grad is not None]
    norm = torch.nn.utils.get_total_norm([weight.grad for weight in clipped if weight.grad is not None])
    if largest is None:
        return norm
    # Rounded as in PyTorch, which adds 1e-6: the factor may be just below 1 if the norm is `largest`. A NaN norm is
    # clipped too.
    if norm.device.type != "cpu" or not largest / (norm + 1e-6) >= 1:
        torch.nn.utils.clip_grads_with_norm_(clipped, largest, norm)
    return norm
