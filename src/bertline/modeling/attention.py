"""Scaled dot-product attention, written four ways that give the same numbers.

Shapes: B sequences (or packed rows), N heads, S positions, D channels of a head, C pieces of packed rows.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, assert_never

import torch
import torch.nn.functional as F
from torch import Tensor

from bertline.modeling.attention_choice import AttentionDevice, AttentionKind
from bertline.modeling.dropout import dropout

__all__ = [
    "Attended",
    "AttentionKind",
    "Scope",
    "attend",
    "attention_device",
    "packed_scope",
    "padded_scope",
]

# Finite in bf16 and fp32 alike: a row whose keys are all padding gives a uniform average instead of NaN.
_MASKED_SCORE = torch.finfo(torch.bfloat16).min


class Scope(NamedTuple):
    """What each position sees."""

    bias: Tensor | None = None
    """Added to the scores, [B, 1, 1 or S, S]; None where every position sees the whole row, or for `varlen`."""
    boundaries: Tensor | None = None
    """[C + 1] int32, where each piece begins in the rows laid end to end; a position sees its piece. For `varlen`."""


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
    scope: Scope,
    *,
    kind: AttentionKind,
    dropout_prob: float = 0.0,
    dropout_site: int = 0,
    dropout_places: Tensor | None = None,
) -> Attended:
    """Attend from every position, or from some of each row, to those in their scope.

    Args:
        query: [B, N, S, D]; where only Q positions of each row ask, [B, N, Q, D].
        key: [B, N, S, D].
        value: [B, N, S, D].
        scope: What each position sees.
        kind: `eager` keeps each intermediate result for people to look at; `plain` is the same formula with nothing
            kept; `sdpa` is PyTorch's fused kernel, which never stores the [S, S] scores; `varlen` is its kernel for
            packed rows on a GPU, which computes no score across sequences. Rows that are not packed it gives to `sdpa`.
        dropout_prob: Share of the probabilities set to zero; the caller passes 0 outside training.
        dropout_site: See `modeling.dropout`.
        dropout_places: Place of each probability, [B, N, Q, S]; see `modeling.dropout`. Fused kernels ignore it.

    Example:
        Two positions, the second of them padding, so that both take the value of the first:

        >>> query = key = torch.zeros(1, 1, 2, 1)
        >>> value = torch.tensor([[[[5.0], [7.0]]]])
        >>> scope = padded_scope(torch.tensor([[1, 0]]))
        >>> attend(query, key, value, scope, kind="eager").context.flatten().tolist()
        [5.0, 5.0]

    References:
        Vaswani et al., Attention Is All You Need (arXiv 1706.03762), section 3.2.1.
    """
    match kind:
        case "eager":
            scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])  # [B, N, S, S]
            if scope.bias is not None:
                scores = scores + scope.bias
            probabilities = scores.softmax(dim=-1, dtype=torch.float32)
            kept = dropout(probabilities, dropout_prob, site=dropout_site, places=dropout_places)
            return Attended(kept.to(value.dtype) @ value, scores, probabilities)
        case "plain":
            # The scale goes to the query, S x D numbers instead of S x S.
            scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
            if scope.bias is not None:
                scores = scores + scope.bias
            probabilities = scores.softmax(dim=-1, dtype=torch.float32)
            kept = dropout(probabilities, dropout_prob, site=dropout_site, places=dropout_places)
            return Attended(kept.to(value.dtype) @ value)
        case "varlen" if scope.boundaries is not None:
            return Attended(_attend_within_pieces(query, key, value, scope.boundaries))
        case "sdpa" | "varlen":
            bias = None if scope.bias is None else scope.bias.to(query.dtype)
            return Attended(F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout_prob))
        case _:
            assert_never(kind)


def _attend_within_pieces(query: Tensor, key: Tensor, value: Tensor, boundaries: Tensor) -> Tensor:
    """The rows are laid end to end, [B * S, N, D]; no piece is longer than a row."""
    from torch.nn.attention.varlen import varlen_attn

    size, _, width, _ = query.shape
    flat = (heads.transpose(1, 2).flatten(0, 1) for heads in (query, key, value))
    context = varlen_attn(*flat, boundaries, boundaries, width, width)
    return context.unflatten(0, (size, width)).transpose(1, 2)


def padded_scope(attention_mask: Tensor | None) -> Scope:
    """Every position sees all that are not padding.

    Args:
        attention_mask: [B, S], 1 (or True) for a real position, 0 for padding; None where there is no padding.
    """
    return Scope() if attention_mask is None else Scope(bias=_bias(attention_mask != 0)[:, None, None, :])


def packed_scope(sequence_ids: Tensor, boundaries: Tensor, kind: AttentionKind) -> Scope:
    """Every position sees those of its own sequence (padding sees padding, which nobody reads).

    Args:
        sequence_ids: [B, S], which sequence a position of a row is of.
        boundaries: See `Scope`.
        kind: That attention will be computed by.
    """
    if kind == "varlen":
        return Scope(boundaries=boundaries)
    return Scope(bias=_bias(sequence_ids[:, :, None] == sequence_ids[:, None, :])[:, None])


def _bias(is_seen: Tensor) -> Tensor:
    """0 for what is seen, a very large negative number for the rest, in fp32."""
    bias = torch.zeros(is_seen.shape, dtype=torch.float32, device=is_seen.device)
    return bias.masked_fill(~is_seen, _MASKED_SCORE)


def attention_device(device: torch.device, precision: Literal["fp32", "bf16"]) -> AttentionDevice:
    """What `attention_choice` must know of a device of this machine."""
    if device.type != "cuda":
        return AttentionDevice(type=device.type, precision=precision)
    return AttentionDevice(
        type=device.type,
        precision=precision,
        compute_capability=torch.cuda.get_device_capability(device),
        has_varlen=_has_varlen(),
    )


def _has_varlen() -> bool:
    try:
        from torch.nn.attention import varlen
    except ImportError:
        return False
    return hasattr(varlen, "varlen_attn")
