"""Choice of the fastest attention kernel from device, sequence length, dtype and dropout, with the reason.

This module does not import PyTorch, so the planner can make the same choice as the run.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

AttentionKind = Literal["eager", "plain", "sdpa", "varlen"]
AttentionSetting = Literal["auto", "eager", "plain", "sdpa", "varlen"]

# Milliseconds with `plain` / `sdpa` for one compiled layer, forward and backward, 4,096 or 8,192 tokens, fastest of
# several runs on an AMD EPYC with bf16 instructions, 1 thread unless noted. First pair: hidden size 128, 2 heads;
# second pair: hidden size 256, 4 heads.
#     bf16   512: 58 / 103, 95 / 125 (2 threads: 35 / 51)   1,024: 124 / 147, 147 / 171 (2 threads: 80 / 75)
#     fp32   512: 227 / 196, 316 / 282                      1,024: 356 / 279, 428 / 350
# From 1,024 tokens, `sdpa` is about as fast in bf16 too and does not store the [S, S] scores.
_FUSED_FROM_ON_CPU = {"bf16": 1024, "fp32": 512}

_VARLEN_HEAD_SIZE_STEP = 8
_VARLEN_MAX_HEAD_SIZE = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionDevice:
    """Device and dtype of the attention computation."""

    type: str
    """`cpu`, `cuda` or `mps`."""
    precision: Literal["fp32", "bf16"]
    compute_capability: tuple[int, int] | None = None
    """None for other devices than CUDA."""


class AttentionChoice(NamedTuple):
    """The chosen attention kernel."""

    kind: AttentionKind
    reason: str
    """Human-readable reason, to be printed in parentheses."""


def choose_attention(
    asked: AttentionSetting,
    device: AttentionDevice,
    length: int,
    *,
    dropout_prob: float = 0.0,
    lacking_for_varlen: tuple[str, ...] = ("packed rows",),
) -> AttentionChoice:
    """Resolve `auto` to the fastest kernel.

    Other settings are used as given, except `varlen` where it cannot run: then the fastest kernel is used.

    Args:
        length: Number of tokens of the longest sequence.
        lacking_for_varlen: Requirements of `varlen` that are not met, from the function of the same name. By default,
            rows are not packed.

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
    """Return the unmet requirements of the kernel for packed rows, with the keys to change; empty if it can run."""
    is_cuda = device.type == "cuda"
    is_old = device.compute_capability is not None and device.compute_capability < (8, 0)
    needs = {
        "an NVIDIA GPU": is_cuda,
        "a GPU of compute capability 8.0 or more (Ampere or newer)": not (is_cuda and is_old),
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
    """Return whether the [S, S] scores of every head are stored.

    PyTorch's fallback for `sdpa` with dropout on a CPU stores them too.
    """
    return kind in ("eager", "plain") or (device.type == "cpu" and dropout_prob > 0)


def _fastest(device: AttentionDevice, length: int, dropout_prob: float, lacking: tuple[str, ...]) -> AttentionChoice:
    match device.type:
        case "cuda" if not lacking:
            return AttentionChoice("varlen", "computes no score across sequences")
        case "cuda":
            return AttentionChoice("sdpa", f"varlen, which is faster, needs {', '.join(lacking)}")
        case "cpu" if dropout_prob > 0:
            # Compiled, 512 positions, rate 0.1, `plain` against `sdpa`: 17 against 54 ms in bf16, 46 against 80 ms in
            # fp32 (2,048 tokens, one core).
            return AttentionChoice("plain", "a CPU's fused kernel has no dropout")
        case "cpu":
            fused_from = _FUSED_FROM_ON_CPU[device.precision]
            if length < fused_from:
                return AttentionChoice("plain", f"the fastest below {fused_from:,} tokens")
            return AttentionChoice("sdpa", f"fused, for {fused_from:,} tokens and more")
        case _:
            return AttentionChoice("sdpa", "fused")
