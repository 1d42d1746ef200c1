"""The settings of every optimizer, and the contract of an optimizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:  # an optimizer is also a section of the configuration, which is read without torch
    import torch
    from torch import nn

    from bertline.training.devices import Precision


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerSettings(ABC):
    """An optimizer: a section of the configuration that builds it.

    An optimizer is a dataclass in a file of `training/optimizers`, which `registry.py` lists in `OptimizerConfig`. The
    file is imported wherever a configuration is read, so torch is imported inside `build`.
    """

    moments: ClassVar[int]
    """Number of fp32 values of optimizer state per weight, as the planner counts them."""
    moments_of_layers: ClassVar[int | None] = None
    """The same for the matrices of the layers; None if they have as many."""

    lr: float
    """Peak learning rate."""
    weight_decay: float
    """Weight decay of matrices, including embeddings; biases and LayerNorm do not decay (BERT reference code)."""
    max_grad_norm: float | None
    """Global L2 norm to which gradients are clipped; None: no clipping."""

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, found {self.lr}")

    @abstractmethod
    def build(self, model: nn.Module, *, precision: Precision = "fp32") -> torch.optim.Optimizer:
        """Build the optimizer over all trainable weights of `model`, already on its device, for a run in `precision`.

        Matrices have weight decay; vectors (biases, LayerNorm's scale and shift) do not, as in the reference code's
        `exclude_from_weight_decay`. A group may have a `rate_factor`, which multiplies its learning rate. The optimizer
        must be able to skip a step: it is fused (`weights.can_fuse`) or a `GroupwiseOptimizer`.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamSettings(OptimizerSettings):
    """Settings of the optimizers that keep Adam's two moments."""

    moments: ClassVar[int] = 2

    beta1: float
    """Decay rate of the first moment."""
    beta2: float
    """Decay rate of the second moment."""
    eps: float
    """Term added to the denominator for numerical stability."""

    def __post_init__(self) -> None:
        # Named, not super(): slots=True creates a new class, and super() would refer to the old one.
        OptimizerSettings.__post_init__(self)
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise ValueError(f"beta1 and beta2 must be in [0, 1), found {self.beta1} and {self.beta2}")
