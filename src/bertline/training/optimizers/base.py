"""The contract of an optimizer, the settings of every one, and groups of weights with and without decay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bertline.foundation.checked import Checked, FractionBelowOne, PositiveFloat

if TYPE_CHECKING:  # an optimizer is also a section of the configuration, which is read without torch
    import torch
    from torch import nn

    from bertline.training.config import Precision


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerSettings(Checked, ABC):
    """An optimizer: a section of the configuration that builds it.

    The package lists it in `OptimizerConfig`. Its file is imported wherever a configuration is read, so torch is
    imported inside `build`.
    """

    moments: ClassVar[int]
    """Number of fp32 values of optimizer state per weight, as the planner counts them."""
    moments_of_layers: ClassVar[int | None] = None
    """The same for the matrices of the layers; None if they have as many."""

    lr: PositiveFloat
    """Peak learning rate."""
    weight_decay: float
    """Weight decay of matrices, including embeddings; biases and LayerNorm do not decay (BERT reference code)."""
    max_grad_norm: float | None
    """Global L2 norm to which gradients are clipped; None: no clipping."""

    @abstractmethod
    def build(self, model: nn.Module, *, precision: Precision = "fp32") -> torch.optim.Optimizer:
        """Build the optimizer over all trainable weights of `model`, already on its device, for a run in `precision`.

        Matrices have weight decay; vectors (biases, LayerNorm's scale and shift) do not, as in the reference code's
        `exclude_from_weight_decay`. A group may have a `rate_factor`, which multiplies its learning rate. The optimizer
        must be able to skip a step: it is one of PyTorch's, fused, or has their `found_inf`, as `Muon`.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamSettings(OptimizerSettings):
    """Settings of the optimizers that keep Adam's two moments."""

    moments: ClassVar[int] = 2

    beta1: FractionBelowOne
    """Decay rate of the first moment."""
    beta2: FractionBelowOne
    """Decay rate of the second moment."""
    eps: float
    """Term added to the denominator for numerical stability."""


def groups_by_decay(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Group the trainable weights: matrices with `weight_decay`, then vectors without."""
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return not_empty(
        [
            {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": weight_decay},
            {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
        ]
    )


def not_empty(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups that have weights."""
    return [group for group in groups if group["params"]]
