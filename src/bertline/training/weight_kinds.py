"""Classify the weights of a model: matrices of its layers, other matrices, and vectors."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from bertline.modeling.layers import EncoderLayer

MATRICES_IN_FUSED = 3
"""Number of matrices of equal shape (query, key and value) stacked along the rows of a fused weight [3 H, H]."""


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
