"""Scaled dot-product attention: four implementations with the same result.

Shapes: B sequences (or packed rows), N heads, S positions, D channels per head, C spans of packed rows (a span is a
sequence, or the padding at the end of a row).
"""

import math
from contextlib import nullcontext
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bertline.modeling.attention_choice import AttentionDevice, AttentionKind
from bertline.modeling.dropout import TokenMasks, dropout

# Finite in both bf16 and fp32: a row whose keys are all padding gives a uniform average instead of NaN.
_MASKED_SCORE = torch.finfo(torch.bfloat16).min

_WITHOUT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Scope(NamedTuple):
    """Attention scope: the positions that each position attends to."""

    bias: Tensor | None = None
    """Attention bias added to the scores, [B, 1, 1 or S, S]; None for `varlen`, or if nothing is masked."""
    boundaries: Tensor | None = None
    """[C + 1] int32, cumulative span lengths: the start of each span in the flattened rows. A position attends to its
    own span. Only for `varlen`."""
    masks: TokenMasks | None = None
    """Dropout masks of the positions; None: they are drawn from PyTorch's default generator."""


class Attended(NamedTuple):
    """Output of attention; only `eager` returns `scores` and `probabilities`."""

    context: Tensor
    """[B, N, S, D] average of the values, weighted by the probabilities."""
    scores: Tensor | None = None
    """[B, N, S, S] attention scores: query . key / sqrt(D), plus the mask."""
    probabilities: Tensor | None = None
    """[B, N, S, S] softmax of the scores over the keys (last dimension), before dropout."""


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
    """Compute attention from all positions, or from Q positions of each row, to the positions in their scope.

    Args:
        query: [B, N, S, D], or [B, N, Q, D] for Q query positions per row.
        key: [B, N, S, D].
        value: [B, N, S, D].
        kind: `eager` returns every intermediate result, for inspection; `plain` is the same formula and returns the
            context only; `sdpa` is PyTorch's fused kernel, which never stores the [S, S] scores; `varlen` is its kernel
            for packed rows on a GPU, which computes no scores across sequences (other rows use `sdpa`).
        dropout_prob: Fraction of the probabilities set to zero; callers pass 0 outside training.
        dropout_places: Places [B, N, Q, S] of the probabilities; see `modeling.dropout`. Fused kernels ignore them.

    Example:
        Two positions, the second one padding, so both take the value of the first:

        >>> query = key = torch.zeros(1, 1, 2, 1)
        >>> value = torch.tensor([[[[5.0], [7.0]]]])
        >>> scope = padded_scope(torch.tensor([[1, 0]]))
        >>> attend(query, key, value, scope, kind="eager").context.flatten().tolist()
        [5.0, 5.0]

    Reference: Vaswani et al., Attention Is All You Need (arXiv 1706.03762), section 3.2.1.
    """
    keys = None if scope.masks is None else scope.masks.keys
    match kind:
        case "eager" | "plain":
            if kind == "eager":
                scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])  # [B, N, S, S]
            else:  # scaling the query multiplies S x D numbers instead of S x S
                scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
            if scope.bias is not None:
                scores = scores + scope.bias
            probabilities = scores.softmax(dim=-1, dtype=torch.float32)
            dropped = dropout(probabilities, dropout_prob, site=dropout_site, places=dropout_places, keys=keys)
            context = dropped.to(value.dtype) @ value
            return Attended(context, scores, probabilities) if kind == "eager" else Attended(context)
        case "varlen" if scope.boundaries is not None:
            return Attended(_attend_within_spans(query, key, value, scope.boundaries))
        case "sdpa" | "varlen":
            return Attended(_attend_fused(query, key, value, scope.bias, dropout_prob))


def _attend_fused(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout_prob: float) -> Tensor:
    """Run PyTorch's fused attention with the fastest kernel that is safe."""
    if bias is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout_prob)
    avoids_cudnn = _may_get_nan_from_cudnn(query.device.type, query.shape[2], key.shape[2])
    with sdpa_kernel(_WITHOUT_CUDNN) if avoids_cudnn else nullcontext():
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype), dropout_p=dropout_prob)


def _may_get_nan_from_cudnn(device_type: str, *lengths: int) -> bool:
    """Return whether cuDNN may compute NaN gradients of the query for masked rows with these numbers of positions.

    It does for lengths of 64 modulo 128 where the scores of a row are very negative. PyTorch prefers cuDNN on GPUs
    since Hopper.

    Reference: https://github.com/pytorch/pytorch/issues/196678
    """
    return device_type == "cuda" and any(length % 128 == 64 for length in lengths)


def _attend_within_spans(query: Tensor, key: Tensor, value: Tensor, boundaries: Tensor) -> Tensor:
    """Run `varlen_attn` on the flattened rows, [B * S, N, D]; no span is longer than a row."""
    from torch.nn.attention.varlen import varlen_attn

    size, _, width, _ = query.shape
    flat = (heads.transpose(1, 2).flatten(0, 1) for heads in (query, key, value))
    context = varlen_attn(*flat, boundaries, boundaries, width, width)
    return context.unflatten(0, (size, width)).transpose(1, 2)


def padded_scope(attention_mask: Tensor | None, masks: TokenMasks | None = None) -> Scope:
    """Return a scope in which every position attends to all positions that are not padding.

    Args:
        attention_mask: [B, S], 1 (or True) for real positions, 0 for padding; None if there is no padding.
    """
    bias = None if attention_mask is None else _bias(attention_mask != 0)[:, None, None, :]
    return Scope(bias=bias, masks=masks)


def packed_scope(
    sequence_ids: Tensor, boundaries: Tensor, kind: AttentionKind, masks: TokenMasks | None = None
) -> Scope:
    """Return a scope in which every position attends to its own sequence.

    Padding attends to padding; its output is never read.

    Args:
        sequence_ids: [B, S], id of the sequence that each position of a row belongs to.
    """
    if kind == "varlen":
        return Scope(boundaries=boundaries, masks=masks)
    return Scope(bias=_bias(sequence_ids[:, :, None] == sequence_ids[:, None, :])[:, None], masks=masks)


def _bias(is_seen: Tensor) -> Tensor:
    """Return an fp32 attention bias: 0 for visible positions, a very large negative number for masked ones."""
    bias = torch.zeros(is_seen.shape, dtype=torch.float32, device=is_seen.device)
    return bias.masked_fill(~is_seen, _MASKED_SCORE)


def attention_device(device: torch.device, precision: Literal["fp32", "bf16"]) -> AttentionDevice:
    """Describe a device of this machine for `attention_choice`."""
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    return AttentionDevice(type=device.type, precision=precision, compute_capability=capability)
