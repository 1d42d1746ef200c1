"""Layout of a step's sequences in micro-batches: padded (one per row) or packed (several per row)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bertline.examples.store import ExampleStore
from bertline.foundation.errors import ConfigError, MachineError
from bertline.modeling.attention_choice import (
    AttentionChoice,
    AttentionDevice,
    AttentionKind,
    choose_attention,
    lacking_for_varlen,
)
from bertline.modeling.config import ModelConfig
from bertline.training.config import RuntimeConfig

# If attention computes whole rows, masking other sequences costs about as much as the padding at this fill.
_PACKS_BELOW_FILL = 0.85


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLayout:
    """Layout of the sequences of one length."""

    packed: bool
    rows: int | None
    """Rows per micro-batch; None: the whole share of a step."""


def pretraining_attention(
    runtime: RuntimeConfig, model: ModelConfig, device: AttentionDevice, length: int
) -> AttentionChoice:
    """Choose the attention kernel for pretraining on sequences of this length.

    Raises:
        MachineError: `varlen` was requested but is not available.
    """
    dropout_prob = model.attention_probs_dropout_prob
    lacking = lacking_for_varlen(
        device,
        head_size=model.hidden_size // model.num_attention_heads,
        dropout_prob=dropout_prob,
        packs=runtime.packing != "off",
    )
    if runtime.attention == "varlen" and lacking:
        needs = ", ".join(lacking)
        raise MachineError(f"runtime.attention is varlen, which needs {needs}. Change that, or use attention=auto.")
    return choose_attention(runtime.attention, device, length, dropout_prob=dropout_prob, lacking_for_varlen=lacking)


def packs(runtime: RuntimeConfig, *, fill: float, attention: AttentionKind) -> bool:
    """Return whether sequences share rows. `auto` packs if attention skips other sequences or padding is large.

    Args:
        runtime: Runtime section, for its `packing`.
        fill: Fraction of real tokens in padded rows.
        attention: Attention kernel.
    """
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
    runtime: RuntimeConfig,
    stores: Mapping[int, ExampleStore],
    attention: Mapping[int, AttentionChoice],
    *,
    are_apart: bool = False,
) -> dict[int, RowLayout]:
    """Return the row layout for each length; `are_apart`: each segment is a sequence of its own.

    Raises:
        ConfigError: A micro-batch is too small for one row.
    """
    return {
        length: RowLayout(
            packed=packs(runtime, fill=fill_of(store, are_apart=are_apart), attention=attention[length].kind),
            rows=rows_at_once(runtime, length),
        )
        for length, store in stores.items()
    }


def fill_of(store: ExampleStore, *, are_apart: bool = False) -> float:
    """Return the fraction of real tokens in padded rows, in (0, 1]; exactly 1 if every sequence has the full length.

    `are_apart`: each of the two segments of an example is a sequence of its own, with one more `[CLS]` for both.
    """
    if are_apart:
        return (store.num_tokens + len(store)) / (2 * len(store) * store.max_length)
    return store.num_tokens / (len(store) * store.max_length)


def layouts_in_words(
    layouts: Mapping[int, RowLayout],
    stores: Mapping[int, ExampleStore],
    attention: Mapping[int, AttentionChoice],
    model: ModelConfig,
    device: AttentionDevice,
    *,
    are_apart: bool = False,
) -> str:
    """Describe the chosen layouts and attention kernels with the reasons, for the log: no slow path is silent."""
    fills = {length: fill_of(stores[length], are_apart=are_apart) for length in layouts}
    parts = [
        f"{_rows_in_words(layout, length, fills[length])}, attention {attention[length].kind} "
        f"({attention[length].reason})"
        for length, layout in layouts.items()
    ]
    dropout = model.attention_probs_dropout_prob
    return f"on {device.type} in {device.precision}, attention dropout {dropout:g}: {'; '.join(parts)}"


def _rows_in_words(layout: RowLayout, length: int, fill: float) -> str:
    if layout.packed:
        return f"packed rows of {length} tokens ({fill:.0%} if padded)"
    if fill == 1:
        return f"rows of {length} tokens, all full"
    # Rounded down, so that rows that need a mask never look full.
    return f"padded rows of {length} tokens ({int(100 * fill)}% real)"
