"""What keeps one bad batch from spoiling all weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def skip_unless_finite(optimizer: torch.optim.Optimizer, grad_norm: Tensor) -> None:
    """Let the step that is about to be taken learn nothing from gradients whose norm is infinite or NaN.

    Decided on the device: nothing is read back. An optimizer whose kernel can pass over a step (PyTorch's fused ones
    take `found_inf`, made for loss scaling) leaves weights and state as they are. For others such gradients are made
    zero: the weights move on by their momentum, as after a batch that teaches nothing.

    Args:
        optimizer: PyTorch's own or another, not Lightning's wrapper; its weights hold the gradients.
        grad_norm: Scalar tensor on the device of the weights.
    """
    is_bad = grad_norm.lt(math.inf).logical_not()  # NaN is not less than anything
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = is_bad.float()  # type: ignore[attr-defined]  # read by the kernel's caller
        return
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if weight.grad is not None:
                weight.grad.masked_fill_(is_bad, 0.0)


@torch.no_grad()
def all_finite(module: torch.nn.Module) -> bool:
    """Whether every weight is a number. Waits for the device."""
    return bool(torch.nn.utils.get_total_norm(list(module.parameters())).isfinite())
