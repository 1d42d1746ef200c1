"""Digest of a model's weights, for checking whether two models have the same weights."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def digest_of_weights(model: nn.Module) -> str:
    """Return a hexadecimal digest of the names, dtypes, shapes and bytes of all weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weights in model.state_dict().items():
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}".encode())
        digest.update(weights.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
