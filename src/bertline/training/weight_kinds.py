"""Which weights of a model are matrices of its layers, which are other matrices, and which are vectors."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from bertline.modeling.layers import EncoderLayer

MATRICES_IN_FUSED = 3
"""Query, key and value: as many matrices of equal shape, one below the other, in a fused weight [3 H, H]."""


class WeightKinds(NamedTuple):
    """The trainable weights of a model, each in one of these, in the model's order."""

    fused: list[nn.Parameter]
    """[3 H, H]: `MATRICES_IN_FUSED` matrices in one."""
    layer_matrices: list[nn.Parameter]
    """The other matrices of the encoder's layers."""
    other_matrices: list[nn.Parameter]
    """Embeddings, pooler and heads."""
    vectors: list[nn.Parameter]
    """Biases, and LayerNorm's scale and shift."""


def weight_kinds(model: nn.Module) -> WeightKinds:
    """Sort the trainable weights of a model, or of a module that holds one."""
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
