"""What keeps one bad batch from spoiling all weights."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from bertline.training.groupwise import GroupwiseOptimizer

_CLIPPING_EPS = 1e-6
"""What PyTorch adds to the norm that it divides by."""


def skip_unless_finite(optimizer: torch.optim.Optimizer, grad_norm: Tensor) -> None:
    """Let the step that is about to be taken change nothing if the norm of its gradients is infinite or NaN.

    Weights and the optimizer's averages then keep their bits. Decided on the device: nothing is read back. AdamW's
    kernel (PyTorch's fused ones take `found_inf`, made for loss scaling) and Muon's AdamW do not count such a step in
    the correction of their averages' bias; LAMB does, see there.

    Args:
        optimizer: One of `build_optimizer`, not Lightning's wrapper.
        grad_norm: Scalar tensor on the device of the weights.

    Raises:
        TypeError: The optimizer cannot pass over a step.
    """
    if not (isinstance(optimizer, GroupwiseOptimizer) or getattr(optimizer, "_step_supports_amp_scaling", False)):
        raise TypeError(f"{type(optimizer).__name__} cannot pass over a step: it is neither bertline's own nor fused")
    is_bad = grad_norm.lt(math.inf).logical_not()  # NaN is not less than anything
    # On the CPU there is nothing to wait for, and a good step need not keep what it would put back.
    taken = is_bad.device.type == "cpu" and not is_bad
    optimizer.found_inf = None if taken else is_bad.float()  # type: ignore[attr-defined]


def clip_gradients(weights: Iterable[nn.Parameter], largest: float | None) -> Tensor:
    """Scale the gradients down together, so that their norm is at most `largest`, and give the norm they had.

    None scales nothing.

    The same bits as PyTorch's `clip_grad_norm_`, which multiplies by 1 where there is nothing to clip: on a CPU that is
    a pass over all gradients, while a GPU would have to be waited for to know.

    References:
        Pascanu et al., "On the difficulty of training recurrent neural networks", ICML 2013 (section 3.2).
    """
    clipped = [weight for weight in weights if weight.grad is not None]
    norm = torch.nn.utils.get_total_norm([weight.grad for weight in clipped if weight.grad is not None])
    if largest is None:
        return norm
    # As PyTorch rounds it, which may leave a factor just below 1 where the norm is the largest one; NaN is no factor.
    if norm.device.type != "cpu" or not largest / (norm + _CLIPPING_EPS) >= 1:
        torch.nn.utils.clip_grads_with_norm_(clipped, largest, norm)
    return norm


@torch.no_grad()
def all_finite(module: torch.nn.Module) -> bool:
    """Whether every weight is a number. Waits for the device."""
    return bool(torch.nn.utils.get_total_norm(list(module.parameters())).isfinite())
