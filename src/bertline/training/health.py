"""Protection of the weights against a bad batch."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from bertline.training.groupwise import GroupwiseOptimizer

_CLIPPING_EPS = 1e-6
"""Value that PyTorch adds to the norm before dividing by it."""


def skip_unless_finite(optimizer: torch.optim.Optimizer, grad_norm: Tensor) -> None:
    """Skip the next optimizer step if the norm of its gradients is infinite or NaN.

    Weights and optimizer averages then stay bitwise unchanged. This is decided on the device: nothing is read back.
    AdamW (PyTorch's fused kernels take `found_inf`, made for loss scaling) and Muon's AdamW do not count a skipped step
    in their bias correction; LAMB does, see `Lamb`.

    Args:
        optimizer: Optimizer from `OptimizerSettings.build`, not Lightning's wrapper.
        grad_norm: Scalar tensor on the device of the weights.

    Raises:
        TypeError: The optimizer cannot skip a step.
    """
    if not (isinstance(optimizer, GroupwiseOptimizer) or getattr(optimizer, "_step_supports_amp_scaling", False)):
        raise TypeError(f"{type(optimizer).__name__} cannot skip a step: it is neither bertline's own nor fused")
    is_bad = grad_norm.lt(math.inf).logical_not()  # NaN is not less than anything
    # On the CPU there is nothing to wait for, and a good step need not make the copies for restoring.
    taken = is_bad.device.type == "cpu" and not is_bad
    optimizer.found_inf = None if taken else is_bad.float()  # type: ignore[attr-defined]


def clip_gradients(weights: Iterable[nn.Parameter], largest: float | None) -> Tensor:
    """Clip the gradients to a global norm of at most `largest` (None: no clipping); return the norm before clipping.

    The result is bitwise that of PyTorch's `clip_grad_norm_`, which multiplies by 1 if there is nothing to clip. On the
    CPU, this function skips that pass over all gradients; elsewhere, finding out would mean waiting for the device.

    References:
        Pascanu et al., "On the difficulty of training recurrent neural networks", ICML 2013 (section 3.2).
    """
    clipped = [weight for weight in weights if weight.grad is not None]
    norm = torch.nn.utils.get_total_norm([weight.grad for weight in clipped if weight.grad is not None])
    if largest is None:
        return norm
    # Rounded as in PyTorch, where the factor may be just below 1 if the norm is `largest`; a NaN norm is clipped too.
    if norm.device.type != "cpu" or not largest / (norm + _CLIPPING_EPS) >= 1:
        torch.nn.utils.clip_grads_with_norm_(clipped, largest, norm)
    return norm


@torch.no_grad()
def all_finite(module: torch.nn.Module) -> bool:
    """Return whether every weight is finite. Waits for the device."""
    return bool(torch.nn.utils.get_total_norm(list(module.parameters())).isfinite())
