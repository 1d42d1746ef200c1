"""The contract of an optimizer, the settings of every one, and the weights of a model sorted into its groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from bertline.foundation.checked import Checked, FractionBelowOne, PositiveFloat

if TYPE_CHECKING:  # an optimizer is also a section of the configuration, which is read without torch
    import torch
    from torch import nn

    from bertline.training.config import Precision

MATRICES_IN_FUSED = 3
"""Number of matrices of equal shape (query, key and value) stacked along the rows of a fused weight [3 H, H]."""


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


class WeightKinds(NamedTuple):
    """Trainable weights of a model, each in one of these lists, in the model's order."""

    fused: list[nn.Parameter]  # [3 H, H], of `MATRICES_IN_FUSED` matrices each
    layer_matrices: list[nn.Parameter]  # other matrices of the encoder's layers
    other_matrices: list[nn.Parameter]  # embeddings, pooler and heads
    vectors: list[nn.Parameter]  # biases, and LayerNorm's scale and shift


def weight_kinds(model: nn.Module) -> WeightKinds:
    """Sort the trainable weights of a model, or of a module that contains one, by kind."""
    from bertline.modeling.layers import EncoderLayer

    layers = [module for module in model.modules() if isinstance(module, EncoderLayer)]
    fused = {layer.query_key_value.weight for layer in layers}
    in_layers = {weight for layer in layers for weight in layer.parameters()}
    kinds = WeightKinds([], [], [], [])
    for weight in model.parameters():
        if not weight.requires_grad:
            continue
        if weight.ndim < 2:
            kinds.vectors.append(weight)
        elif weight in fused:
            kinds.fused.append(weight)
        elif weight in in_layers:
            kinds.layer_matrices.append(weight)
        else:
            kinds.other_matrices.append(weight)
    return kinds


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
