"""Which kind of attention is the fastest: decided by device, length, number format and dropout, and said why.

Imports no PyTorch, so that the planner decides as the run does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

AttentionKind = Literal["eager", "plain", "sdpa", "varlen"]
AttentionSetting = Literal["auto", "eager", "plain", "sdpa", "varlen"]

# One layer, forward and backward, compiled, 4,096 or 8,192 tokens, shortest of several, on 1 and 2 threads of an AMD
# EPYC with bf16 instructions; ms of `plain` and of `sdpa` at 128 channels in 2 heads, and at 256 in 4:
#     bf16   512: 58 and 103, 95 and 125 (2 threads: 35 and 51)   1,024: 124 and 147, 147 and 171 (2 threads: 80 and 75)
#     fp32   512: 227 and 196, 316 and 282                        1,024: 356 and 279, 428 and 350
# From 1,024 on `sdpa` is about as fast in bf16 too, and holds no [S, S] scores.
_FUSED_FROM_ON_CPU = {"bf16": 1024, "fp32": 512}

_VARLEN_CAPABILITY = (8, 0)
_VARLEN_HEAD_SIZE_STEP = 8
_VARLEN_MAX_HEAD_SIZE = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionDevice:
    """Where attention is computed, and in which number format."""

    type: str
    """`cpu`, `cuda` or `mps`."""
    precision: Literal["fp32", "bf16"]
    compute_capability: tuple[int, int] | None = None
    """Of a CUDA device; None for others."""
    has_varlen: bool = True
    """Whether PyTorch brings the kernel for packed rows. Of meaning on CUDA alone."""


class AttentionChoice(NamedTuple):
    """What was decided."""

    kind: AttentionKind
    reason: str
    """For people, to stand in brackets."""


def choose_attention(
    asked: AttentionSetting,
    device: AttentionDevice,
    length: int,
    *,
    dropout_prob: float = 0.0,
    lacking_for_varlen: tuple[str, ...] = ("packed rows",),
) -> AttentionChoice:
    """Resolve `auto` to the fastest kind. Other kinds are taken as asked, but for `varlen` where it cannot be had.

    Args:
        asked: `runtime.attention`.
        device: Where.
        length: The longest sequence.
        dropout_prob: Of the probabilities; 0 where nothing is trained.
        lacking_for_varlen: What stands in its way; see the function of this name. Rows are not packed by default.

    Example:
        >>> cpu = AttentionDevice(type="cpu", precision="bf16")
        >>> choose_attention("auto", cpu, 64).kind, choose_attention("auto", cpu, 1024).kind
        ('plain', 'sdpa')
        >>> choose_attention("auto", cpu, 1024, dropout_prob=0.1).kind
        'plain'
    """
    best = _fastest(device, length, dropout_prob, lacking_for_varlen)
    if asked == "auto" or asked == best.kind:
        return best
    if asked == "varlen":
        return AttentionChoice(best.kind, f"varlen needs {', '.join(lacking_for_varlen)}")
    return AttentionChoice(asked, f"asked for; auto would take {best.kind}: {best.reason}")


def lacking_for_varlen(device: AttentionDevice, *, head_size: int, dropout_prob: float, packs: bool) -> tuple[str, ...]:
    """What the kernel for packed rows needs and does not have, with the keys to change; empty where it can run.

    Args:
        device: Where.
        head_size: Channels of a head.
        dropout_prob: Of the probabilities.
        packs: Whether sequences may share rows.
    """
    is_cuda = device.type == "cuda"
    is_old = device.compute_capability is not None and device.compute_capability < _VARLEN_CAPABILITY
    needs = {
        "an NVIDIA GPU": is_cuda,
        "a GPU of compute capability 8.0 or more (Ampere or newer)": not (is_cuda and is_old),
        "a PyTorch with torch.nn.attention.varlen": device.has_varlen or not is_cuda,
        "pretrain.precision=bf16": device.precision == "bf16",
        "model.attention_probs_dropout_prob=0 (its kernel has no dropout)": dropout_prob == 0,
        f"heads of a multiple of {_VARLEN_HEAD_SIZE_STEP} channels and at most {_VARLEN_MAX_HEAD_SIZE} "
        f"(model.hidden_size over model.num_attention_heads is {head_size})": (
            head_size % _VARLEN_HEAD_SIZE_STEP == 0 and head_size <= _VARLEN_MAX_HEAD_SIZE
        ),
        "runtime.packing=auto or on": packs,
    }
    return tuple(need for need, is_there in needs.items() if not is_there)


def stores_scores(kind: AttentionKind, device: AttentionDevice, *, dropout_prob: float) -> bool:
    """Whether the [S, S] scores of every head lie in memory: they do in PyTorch's fallback for dropout on a CPU too."""
    return kind in ("eager", "plain") or (device.type == "cpu" and dropout_prob > 0)


def _fastest(device: AttentionDevice, length: int, dropout_prob: float, lacking: tuple[str, ...]) -> AttentionChoice:
    match device.type:
        case "cuda" if not lacking:
            return AttentionChoice("varlen", "computes no score across sequences")
        case "cuda":
            return AttentionChoice("sdpa", f"varlen, which is faster, needs {', '.join(lacking)}")
        case "cpu" if dropout_prob > 0:
            # Compiled, 512 positions, rate 0.1: 17 ms against 54 in bf16, 46 against 80 in fp32 (2,048 tokens, a core).
            return AttentionChoice("plain", "a CPU's fused kernel has no dropout")
        case "cpu":
            fused_from = _FUSED_FROM_ON_CPU[device.precision]
            if length < fused_from:
                return AttentionChoice("plain", f"the fastest below {fused_from:,} tokens")
            return AttentionChoice("sdpa", f"fused, for {fused_from:,} tokens and more")
        case _:
            return AttentionChoice("sdpa", "fused")
