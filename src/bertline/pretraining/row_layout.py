"""How the sequences of a step become micro-batches: padded, a row each, or packed, several a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bertline.examples.store import ExampleStore
from bertline.foundation.errors import ConfigError, MachineError
from bertline.modeling.attention import AttentionKind, choose_attention
from bertline.modeling.config import ModelConfig
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine

# Where attention computes whole rows, telling sequences apart costs about what this share of padding does.
_PACKS_BELOW_FILL = 0.85


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLayout:
    """Of the sequences of one length."""

    packed: bool
    rows: int | None
    """Rows of a micro-batch; None takes the whole share of a step."""


def pretraining_attention(runtime: RuntimeConfig, model: ModelConfig, machine: Machine, length: int) -> AttentionKind:
    """How attention is computed while pretraining.

    Raises:
        MachineError: `varlen` was asked for and cannot be had.
    """
    lacking = _lacking_for_varlen(runtime, model, machine)
    if runtime.attention == "varlen" and lacking:
        raise MachineError(f"runtime.attention is varlen, which needs {lacking}. Change that, or use attention=auto.")
    return choose_attention(runtime.attention, machine.device.type, length, can_varlen=not lacking)


def row_layouts(
    runtime: RuntimeConfig, stores: Mapping[int, ExampleStore], attention: AttentionKind
) -> dict[int, RowLayout]:
    """The layout for each length. `auto` packs where attention skips what is not of a sequence, or padding is much.

    Raises:
        ConfigError: A micro-batch is too small for one row.
    """
    return {
        length: RowLayout(packed=_packs(runtime, store, attention), rows=_rows(runtime, length))
        for length, store in stores.items()
    }


def fill_of(store: ExampleStore) -> float:
    """The share of real tokens in padded rows, in (0, 1]."""
    return store.num_tokens / (len(store) * store.max_length)


def layouts_in_words(
    layouts: Mapping[int, RowLayout], stores: Mapping[int, ExampleStore], attention: AttentionKind
) -> str:
    """What was decided, for the log: no slow path is taken silently."""
    parts = [
        f"{'packed' if layout.packed else 'padded'} rows of {length} tokens ({fill_of(stores[length]):.0%} if padded)"
        for length, layout in layouts.items()
    ]
    return f"{', '.join(parts)}, attention {attention}"


def _packs(runtime: RuntimeConfig, store: ExampleStore, attention: AttentionKind) -> bool:
    if runtime.packing != "auto":
        return runtime.packing == "on"
    return attention == "varlen" or fill_of(store) < _PACKS_BELOW_FILL


def _rows(runtime: RuntimeConfig, length: int) -> int | None:
    if runtime.micro_batch_tokens is None:
        return runtime.micro_batch_size
    if runtime.micro_batch_tokens < length:
        raise ConfigError(
            f"runtime.micro_batch_tokens is {runtime.micro_batch_tokens}, too few for one row of {length} tokens "
            f"(pretrain.phases). Give at least {length}."
        )
    return runtime.micro_batch_tokens // length


def _lacking_for_varlen(runtime: RuntimeConfig, model: ModelConfig, machine: Machine) -> str:
    needs = {
        "an NVIDIA GPU": machine.device.type == "cuda",
        "pretrain.precision=bf16": machine.precision == "bf16",
        "model.attention_probs_dropout_prob=0 (its kernel has no dropout)": model.attention_probs_dropout_prob == 0,
        "runtime.packing=auto or on": runtime.packing != "off",
    }
    return ", ".join(need for need, is_there in needs.items() if not is_there)
