"""Layout of a step's sequences in micro-batches: padded (one per row) or packed (several), and its attention kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bertline.foundation.errors import ConfigError, MachineError
from bertline.modeling.attention_choice import (
    AttentionChoice,
    AttentionDevice,
    AttentionKind,
    choose_attention,
    lacking_for_varlen,
)
from bertline.modeling.config import ModelConfig
from bertline.modeling.families import FAMILIES
from bertline.training.config import RuntimeConfig

# If attention computes whole rows, masking other sequences costs about as much as the padding at this fill.
_PACKS_BELOW_FILL = 0.85
_PLAIN = AttentionChoice("plain", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLayout:
    """Layout of the sequences of one length, and the kernel that computes attention in it."""

    packed: bool
    rows: int | None
    """Rows per micro-batch; None: the whole share of a step."""
    attention: AttentionChoice = _PLAIN


def pretraining_attention(
    runtime: RuntimeConfig, model: ModelConfig, device: AttentionDevice, length: int
) -> AttentionChoice:
    """Choose the attention kernel for pretraining on sequences of this length.

    Raises:
        MachineError: `varlen` was requested but is not available.
    """
    dropout_prob, head_size = model.attention_probs_dropout_prob, model.hidden_size // model.num_attention_heads
    lacking = lacking_for_varlen(device, head_size=head_size, dropout_prob=dropout_prob, packs=runtime.packing != "off")
    if runtime.attention == "varlen" and lacking:
        needs = ", ".join(lacking)
        raise MachineError(f"runtime.attention is varlen, which needs {needs}. Change that, or use attention=auto.")
    return choose_attention(runtime.attention, device, length, dropout_prob=dropout_prob, lacking_for_varlen=lacking)


def packs(runtime: RuntimeConfig, *, fill: float, attention: AttentionKind) -> bool:
    """Return whether to share rows; `auto`: if attention skips others, or `fill`, real part of padded rows, is low."""
    if runtime.packing != "auto":
        return runtime.packing == "on"
    return attention == "varlen" or fill < _PACKS_BELOW_FILL


def rows_at_once(runtime: RuntimeConfig, length: int) -> int | None:
    """Return the rows of `length` tokens per micro-batch on one device; None: the whole share of a step.

    Raises:
        ConfigError: `runtime.micro_batch_tokens` is too small for one row.
    """
    if runtime.micro_batch_tokens is None:
        return runtime.micro_batch_size
    if runtime.micro_batch_tokens < length:
        raise ConfigError(
            f"runtime.micro_batch_tokens is {runtime.micro_batch_tokens}, too few for one row of {length} tokens "
            f"(pretrain.phases). Give at least {length}."
        )
    return runtime.micro_batch_tokens // length


def row_layouts(
    runtime: RuntimeConfig, model: ModelConfig, device: AttentionDevice, fills: Mapping[int, float]
) -> dict[int, RowLayout]:
    """Return the row layout for each length, whose padded rows have such a part of real tokens.

    Raises:
        ConfigError: A micro-batch is too small for one row.
        MachineError: `varlen` was requested but is not available.
    """
    layouts = {}
    for length, fill in fills.items():
        attention = pretraining_attention(runtime, model, device, length)
        packed = packs(runtime, fill=fill, attention=attention.kind)
        layouts[length] = RowLayout(packed=packed, rows=rows_at_once(runtime, length), attention=attention)
    return layouts


def frozen_layout(
    layouts: Mapping[int, RowLayout], *, model: ModelConfig, device: str, num_ranks: int
) -> dict[str, Any] | None:
    """Return, as plain data for the checkpoint, what dropout masks depend on besides seed and step; None: on nothing.

    On a CPU, eager and plain attention have the masks of `modeling.dropout.TokenMasks`, which no layout changes:
    `drawn_on` is None. Other devices, fused kernels and wrapped models draw masks in the order in which they compute.
    """
    attention_drops = model.attention_probs_dropout_prob > 0
    others_drop = any(value for key, value in model.own.items() if "dropout" in key)
    if not (attention_drops or model.hidden_dropout_prob > 0 or others_drop):
        return None
    is_wrapped = FAMILIES[model.family].wrapping is not None
    is_fused = any(one.attention.kind not in ("eager", "plain") for one in layouts.values())
    is_drawn = device != "cpu" or (attention_drops and is_fused) or is_wrapped
    lengths = {
        str(length): {"packed": one.packed, "rows": one.rows, "attention": one.attention.kind}
        for length, one in layouts.items()
    }
    return {"drawn_on": _drawn_on(device, num_ranks) if is_drawn else None, "lengths": lengths}


def _drawn_on(device: str, num_ranks: int) -> str:
    return f"{num_ranks} {device} device{'s' if num_ranks > 1 else ''}"


def resumed_layout(
    frozen: Mapping[str, Any] | None,
    layouts: Mapping[int, RowLayout],
    *,
    model: ModelConfig,
    device: str,
    num_ranks: int,
) -> tuple[dict[int, RowLayout], str | None]:
    """Return the layouts of a resumed run: those that it began with, where its dropout masks depend on them.

    The second value is a warning: that the runtime section's are not used, or that the masks change all the same.

    Args:
        frozen: `frozen_layout` of the checkpoint; None for a new run.
    """
    resumed = dict(layouts)
    if frozen is None:
        return resumed, None
    if frozen["drawn_on"] == _drawn_on(device, num_ranks):
        for length in layouts.keys() & map(int, frozen["lengths"]):
            began, attention = frozen["lengths"][str(length)], layouts[length].attention
            if model.attention_probs_dropout_prob > 0 and attention.kind != began["attention"]:
                attention = AttentionChoice(began["attention"], "as the run began")
            resumed[length] = RowLayout(packed=began["packed"], rows=began["rows"], attention=attention)
    now = frozen_layout(resumed, model=model, device=device, num_ranks=num_ranks)
    if now is not None and frozen["drawn_on"] != now["drawn_on"]:
        was, is_now = (one["drawn_on"] or "a CPU with eager or plain attention" for one in (frozen, now))
        return resumed, f"the run began with the dropout masks of {was}; from here on they are those of {is_now}"
    if all(replace(one, rows=one.rows or resumed[length].rows) == resumed[length] for length, one in layouts.items()):
        return resumed, None
    rows = "; ".join(
        f"{one.rows or 'all'} {'packed' if one.packed else 'padded'} rows of {length} tokens at once, "
        f"{one.attention.kind}"
        for length, one in resumed.items()
    )
    return resumed, (
        "packing, attention and micro-batches of the runtime section are not used: the dropout masks of the run depend "
        f"on those that it began with ({rows}). For others, train from scratch in another run folder."
    )


def layouts_in_words(
    layouts: Mapping[int, RowLayout], fills: Mapping[int, float], model: ModelConfig, device: AttentionDevice
) -> str:
    """Describe the chosen layouts and attention kernels with the reasons, for the log: no slow path is silent."""
    parts = []
    for length, layout in layouts.items():
        fill, (kind, reason) = fills[length], layout.attention
        if layout.packed:
            rows = f"packed rows of {length} tokens ({fill:.0%} if padded)"
        elif fill == 1:
            rows = f"rows of {length} tokens, all full"
        else:  # rounded down, so that rows that need a mask never look full
            rows = f"padded rows of {length} tokens ({int(100 * fill)}% real)"
        parts.append(f"{rows}, attention {kind} ({reason})")
    dropout = model.attention_probs_dropout_prob
    return f"on {device.type} in {device.precision}, attention dropout {dropout:g}: {'; '.join(parts)}"
