"""What keeps one bad batch from spoiling all weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bertline.training.groupwise import GroupwiseOptimizer


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


@torch.no_grad()
def all_finite(module: torch.nn.Module) -> bool:
    """Whether every weight is a number. Waits for the device."""
    return bool(torch.nn.utils.get_total_norm(list(module.parameters())).isfinite())
