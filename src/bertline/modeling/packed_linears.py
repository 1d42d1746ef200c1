"""Encoder matrix products with oneDNN and prepacked weights: equal up to rounding, and faster.

On a CPU, PyTorch computes fp32 matrix products with its BLAS, which packs the weights again in each call; MKL uses only
half of the vector units of non-Intel processors. oneDNN uses all of them, keeps the packed weights, and applies the
activation to each block of the product while the block is in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bertline.modeling.layers import EncoderLayer

# Number of tokens that the weight layout is optimised for; other numbers work too.
_TOKENS = 512
_LINEARS = ("query_key_value", "attention_output", "intermediate", "output")


class _PackedLinear(nn.Module):
    """A linear layer and an optional activation as one oneDNN operation."""

    def __init__(self, linear: nn.Linear, activation: nn.GELU | None = None) -> None:
        super().__init__()
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _TOKENS)
        self._bias = linear.bias.detach()
        self._operation: tuple[str, list[float], str] = (
            ("none", [], "") if activation is None else ("gelu", [], activation.approximate)
        )

    def forward(self, values: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(values.contiguous(), self._weight, self._bias, *self._operation)


@contextmanager
def packed_linears(model: nn.Module) -> Iterator[bool]:
    """Context manager that computes a model's encoder layers with oneDNN, without gradients.

    Yields whether that is possible: only in fp32 on a CPU, if this PyTorch has the operations. Inside the block the
    encoder's weights are in memory twice, and changes to them have no effect.
    """
    layers = [module for module in model.modules() if isinstance(module, EncoderLayer)]
    if not layers or not _works(layers[0]):
        yield False
        return
    plain = [(layer, name, getattr(layer, name)) for layer in layers for name in (*_LINEARS, "activation")]
    try:
        for layer in layers:
            _pack(layer)
        yield True
    finally:
        for layer, name, module in plain:
            setattr(layer, name, module)


def _pack(layer: EncoderLayer) -> None:
    fused = layer.activation if isinstance(layer.activation, nn.GELU) else None
    for name in _LINEARS:
        setattr(layer, name, _PackedLinear(getattr(layer, name), fused if name == "intermediate" else None))
    if fused is not None:
        layer.activation = nn.Identity()


def _works(layer: EncoderLayer) -> bool:
    linear = layer.attention_output
    weight = linear.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return False
    try:
        with torch.no_grad():
            values = weight[:1]
            return torch.allclose(_PackedLinear(linear)(values), linear(values), atol=1e-4, rtol=1e-3)
    # The operations are not part of PyTorch's public API; without them, or if they differ, the layers stay as they are.
    except (AttributeError, RuntimeError, TypeError):
        return False
