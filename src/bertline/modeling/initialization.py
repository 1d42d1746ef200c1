"""Random initialisation of weights; all new weights are drawn here."""

from collections.abc import Container

import torch
from torch import Tensor, nn

from bertline.foundation.seeds import seed_for
from bertline.modeling.config import ModelConfig

# Truncation at two standard deviations, as in TensorFlow's truncated_normal_initializer, used by the reference code.
_CUT_AT_STD = 2.0


@torch.no_grad()
def initialize(module: nn.Module, config: ModelConfig, *, seed: int, but: Container[str] = ()) -> None:
    """Initialise every weight of a model in place; the same seed gives the same weights on every machine.

    Weights whose names are in `but` are left unchanged, which saves time if they are about to be replaced.

    Matrices and embeddings are drawn from a normal distribution with standard deviation `initializer_range`, truncated
    at two standard deviations. Biases are 0, LayerNorm scales 1. Each tensor has its own generator, seeded by the
    tensor's name, so another head or an additional layer does not change the other tensors.

    Notes:
        The embedding of the padding token is 0, as in transformers (the reference code draws it); it has no effect,
        because padding is masked.

    Reference: google-research/bert `modeling.py`, `create_initializer`.
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
    """Draw from a truncated normal distribution by redrawing values beyond the limit.

    The same algorithm as `nn.init.trunc_normal_` of PyTorch 2.13; that of 2.11 gives other values for the same seed.
    """
    drawn = torch.empty(shape).normal_(std=std, generator=generator)
    while (outside := drawn.abs() > _CUT_AT_STD * std).any():
        drawn = torch.where(outside, torch.empty(shape).normal_(std=std, generator=generator), drawn)
    return drawn
