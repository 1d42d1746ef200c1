"""The one place where weights are drawn."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bertline.foundation.seeds import seed_for
from bertline.modeling.config import ModelConfig

# A normal cut at two standard deviations (TensorFlow's truncated_normal_initializer, which the reference code uses).
_CUT_AT_STD = 2.0


@torch.no_grad()
def initialize(module: nn.Module, config: ModelConfig, *, seed: int, but: Container[str] = ()) -> None:
    """Draw every weight of a model in place, the same for the same seed on every machine.

    Those whose names are in `but` stay as they are, which saves the time where others are about to replace them.

    Matrices and embeddings come from a normal with standard deviation `initializer_range`, cut at twice that. Biases
    are 0, LayerNorm scales 1. Each tensor has a generator of its own, named after the tensor, so that another head
    or one more layer leaves the others' numbers as they are.

    Notes:
        The embedding of the padding piece is 0, as in transformers (the reference code draws it); nothing reads it,
        as padding is masked.

    References:
        google-research/bert `modeling.py`, `create_initializer`.
    """
    std = config.initializer_range
    for name, child in module.named_modules():
        for parameter_name, parameter in child.named_parameters(recurse=False):
            if f"{name}.{parameter_name}" in but:
                continue
            if isinstance(child, nn.LayerNorm):
                parameter.fill_(1.0 if parameter_name == "weight" else 0.0)
            elif parameter.ndim < 2:
                parameter.zero_()
            else:
                generator = torch.Generator(device="cpu").manual_seed(seed_for(seed, f"{name}.{parameter_name}"))
                parameter.copy_(_cut_normal(parameter.shape, std, generator))
        if isinstance(child, nn.Embedding) and child.padding_idx is not None and f"{name}.weight" not in but:
            child.weight[child.padding_idx].zero_()


def _cut_normal(shape: torch.Size, std: float, generator: torch.Generator) -> Tensor:
    """Numbers of a normal, drawn again where they lie beyond the cut.

    What `nn.init.trunc_normal_` of PyTorch 2.13 does; that of 2.11 gives other numbers for the same seed.
    """
    drawn = torch.empty(shape).normal_(std=std, generator=generator)
    while (outside := drawn.abs() > _CUT_AT_STD * std).any():
        drawn = torch.where(outside, torch.empty(shape).normal_(std=std, generator=generator), drawn)
    return drawn


class Undrawn(TorchFunctionMode):
    """Within it, a new model's matrices hold no numbers yet: PyTorch's own are not drawn only to be replaced.

    For models whose every weight is read from a file, or drawn by `initialize`, before it is used.
    """

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func in (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return named["tensor"] if "tensor" in named else args[0]
        return func(*args, **named)
