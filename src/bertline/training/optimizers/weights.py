"""The weights of a model, sorted into the groups of an optimizer."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from bertline.modeling.layers import EncoderLayer

FUSED_DEVICES = ("cpu", "cuda", "mps")
"""Device types on which PyTorch's AdamW can update all weights in one kernel."""
MATRICES_IN_FUSED = 3
"""Number of matrices of equal shape (query, key and value) stacked along the rows of a fused weight [3 H, H]."""


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of the next step in every parameter group: `lr` times the group's `rate_factor`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("rate_factor", 1.0)


class WeightKinds(NamedTuple):
    """Trainable weights of a model, each in one of these lists, in the model's order."""

    fused: list[nn.Parameter]
    """Fused weights [3 H, H] of `MATRICES_IN_FUSED` matrices each."""
    layer_matrices: list[nn.Parameter]
    """Other matrices of the encoder's layers."""
    other_matrices: list[nn.Parameter]
    """Embeddings, pooler and heads."""
    vectors: list[nn.Parameter]
    """Biases, and LayerNorm's scale and shift."""


def weight_kinds(model: nn.Module) -> WeightKinds:
    """Sort the trainable weights of a model, or of a module that contains one, by kind."""
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


def can_fuse(weights: list[nn.Parameter]) -> bool:
    """Return whether PyTorch can update the weights in one kernel on their devices."""
    return all(weight.device.type in FUSED_DEVICES for weight in weights)
