"""Scaled dot-product attention, written three ways that give the same numbers.

Shapes: B sequences, N heads, S positions, D channels of a head.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, assert_never

import torch
import torch.nn.functional as F
from torch import Tensor

AttentionKind = Literal["eager", "plain", "sdpa"]

# benchmarks/attention_kinds.py, 2 cores, bf16, forward and backward: up to 256 positions the plain formula is faster
# (compiled, 110 against 58 thousand tokens/s at 64, 96 against 55 at 256); at 512 the fused kernel is (67 against 48).
_SDPA_FROM_LENGTH_ON_CPU = 512

# Finite in bf16 and fp32 alike: a row whose keys are all padding gives a uniform average instead of NaN.
_MASKED_SCORE = torch.finfo(torch.bfloat16).min


class Attended(NamedTuple):
    """What attention gives; the last two only from `eager`."""

    context: Tensor
    """[B, N, S, D] the values, averaged by the probabilities."""
    scores: Tensor | None = None
    """[B, N, S, S] query . key / sqrt(D), plus the mask."""
    probabilities: Tensor | None = None
    """[B, N, S, S] softmax of the scores over the keys (last axis), before dropout."""


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask_bias: Tensor | None,
    *,
    kind: AttentionKind,
    dropout_prob: float = 0.0,
) -> Attended:
    """Attend from every position to every position that is not padding.

    Args:
        query: [B, N, S, D].
        key: [B, N, S, D].
        value: [B, N, S, D].
        mask_bias: [B, 1, 1, S] of `mask_bias_of`, or None where no position is padding.
        kind: `eager` keeps each intermediate result for people to look at; `plain` is the same formula with nothing
            kept; `sdpa` is PyTorch's fused kernel, which never stores the [S, S] scores.
        dropout_prob: Share of the probabilities set to zero; the caller passes 0 outside training.

    Example:
        Two positions, the second of them padding, so that both take the value of the first:

        >>> query = key = torch.zeros(1, 1, 2, 1)
        >>> value = torch.tensor([[[[5.0], [7.0]]]])
        >>> bias = mask_bias_of(torch.tensor([[1, 0]]))
        >>> attend(query, key, value, bias, kind="eager").context.flatten().tolist()
        [5.0, 5.0]

    References:
        Vaswani et al., Attention Is All You Need (arXiv 1706.03762), section 3.2.1.
    """
    match kind:
        case "eager":
            scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])  # [B, N, S, S]
            if mask_bias is not None:
                scores = scores + mask_bias
            probabilities = scores.softmax(dim=-1, dtype=torch.float32)
            context = F.dropout(probabilities, dropout_prob).to(value.dtype) @ value
            return Attended(context, scores, probabilities)
        case "plain":
            # The scale goes to the query, S x D numbers instead of S x S.
            scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
            if mask_bias is not None:
                scores = scores + mask_bias
            probabilities = scores.softmax(dim=-1, dtype=torch.float32)
            return Attended(F.dropout(probabilities, dropout_prob).to(value.dtype) @ value)
        case "sdpa":
            bias = None if mask_bias is None else mask_bias.to(query.dtype)
            return Attended(F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout_prob))
        case _:
            assert_never(kind)


def mask_bias_of(attention_mask: Tensor) -> Tensor:
    """What is added to the scores: 0 for a real key, a very large negative number for padding.

    Args:
        attention_mask: [B, S], 1 (or True) for a real position, 0 for padding.

    Returns:
        [B, 1, 1, S] in fp32.
    """
    bias = torch.zeros(attention_mask.shape, dtype=torch.float32, device=attention_mask.device)
    return bias.masked_fill(attention_mask == 0, _MASKED_SCORE)[:, None, None, :]


def choose_attention(kind: Literal["auto", "eager", "plain", "sdpa"], device: str, length: int) -> AttentionKind:
    """Resolve `auto` to the fastest kind for a device type (`cpu`, `cuda`, `mps`) and a sequence length.

    >>> choose_attention("auto", "cpu", 64), choose_attention("auto", "cuda", 64), choose_attention("eager", "cpu", 64)
    ('plain', 'sdpa', 'eager')
    """
    if kind != "auto":
        return kind
    return "plain" if device == "cpu" and length < _SDPA_FROM_LENGTH_ON_CPU else "sdpa"
