"""The one place where weights are drawn."""

from __future__ import annotations

import torch
from torch import nn

from bertline.foundation.seeds import seed_for
from bertline.modeling.config import ModelConfig

# A normal cut at two standard deviations (TensorFlow's truncated_normal_initializer, which the reference code uses).
_CUT_AT_STD = 2.0


@torch.no_grad()
def initialize(module: nn.Module, config: ModelConfig, *, seed: int) -> None:
    """Draw every weight of a model in place, the same for the same seed on every machine with the same PyTorch.

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
            if isinstance(child, nn.LayerNorm):
                parameter.fill_(1.0 if parameter_name == "weight" else 0.0)
            elif parameter.ndim < 2:
                parameter.zero_()
            else:
                generator = torch.Generator(device="cpu").manual_seed(seed_for(seed, f"{name}.{parameter_name}"))
                drawn = torch.empty(parameter.shape)
                cut = _CUT_AT_STD * std
                nn.init.trunc_normal_(drawn, std=std, a=-cut, b=cut, generator=generator)
                parameter.copy_(drawn)
        if isinstance(child, nn.Embedding) and child.padding_idx is not None:
            child.weight[child.padding_idx].zero_()
