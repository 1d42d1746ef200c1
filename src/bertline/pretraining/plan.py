"""Which examples each step takes, in which rows they lie, and the attention kernel that computes those.

Order and plan are pure functions: of seed and epoch, and of the step and the phases. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bertline.foundation.errors import ConfigError, MachineError
from bertline.foundation.seeds import generator, spread_bits
from bertline.modeling.attention_choice import (
    AttentionChoice,
    AttentionDevice,
    AttentionKind,
    choose_attention,
    lacking_for_varlen,
)
from bertline.modeling.config import ModelConfig
from bertline.modeling.families import FAMILIES
from bertline.pretraining.config import PhaseConfig, PretrainConfig
from bertline.training.config import RuntimeConfig

if TYPE_CHECKING:  # the planner does without torch
    from bertline.training.devices import Ranks

_PLAIN = AttentionChoice("plain", "")


def shuffled(positions: np.ndarray, size: int, *, seed: int, epoch: int) -> np.ndarray:
    """Return the examples at these positions, in `[0, size)`, of the order after `epoch` whole passes.

    The order is a keyed permutation of `0 .. size - 1`: a Feistel network over the next power of four, applied
    repeatedly until the value is below `size` (cycle walking). Every position costs the same, so a resumed run starts
    anywhere at once, and no process holds a table of the whole order.

    Returns:
        int64 example ids in `[0, size)`, with the shape of `positions`; over all positions, every id occurs once.

    Reference: Black and Rogaway, Ciphers with Arbitrary Finite Domains (CT-RSA 2002), methods 2 and 3.

    >>> shuffled(np.arange(10), 10, seed=0, epoch=0).tolist()
    [8, 6, 1, 2, 5, 3, 9, 0, 7, 4]
    """
    half_bits = max(1, -(-(size - 1).bit_length() // 2))
    keys = generator(seed, "order", epoch).integers(0, 2**63, size=6, dtype=np.uint64)
    walked = _permute(positions.astype(np.uint64), half_bits, keys)
    while (outside := walked >= size).any():
        walked[outside] = _permute(walked[outside], half_bits, keys)
    return walked.astype(np.int64)


def _permute(values: np.ndarray, half_bits: int, keys: np.ndarray) -> np.ndarray:
    """Apply the Feistel network once to values of `2 * half_bits` bits."""
    mask, shift = np.uint64((1 << half_bits) - 1), np.uint64(half_bits)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (spread_bits(right ^ key) & mask)
    return (left << shift) | right


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Position of training before a step."""

    phase: int
    """Index into `pretrain.phases`."""
    consumed: int
    """Number of examples of this phase's length taken so far, including in earlier phases of this length."""
    max_length: int
    global_batch_size: int


@dataclass(frozen=True)
class Plan:
    """The steps of a run, over all phases.

    >>> phases = [PhaseConfig(steps=2, max_length=64, global_batch_size=8),
    ...           PhaseConfig(steps=9, max_length=64, global_batch_size=32)]
    >>> Plan(phases, num_steps=5).place(3)
    Place(phase=1, consumed=48, max_length=64, global_batch_size=32)
    """

    phases: Sequence[PhaseConfig]
    num_steps: int
    """Steps of the whole run, at most the sum over all phases."""

    @classmethod
    def of(cls, config: PretrainConfig) -> Plan:
        """Return the plan that the pretrain section configures."""
        return cls(config.phases, config.num_steps)

    def sequences(self, first_step: int, end_step: int) -> dict[int, int]:
        """Return the number of sequences of each length in these steps (0-based, end exclusive), in phase order."""
        taken: dict[int, int] = {}
        for place, start, end in self.stretches(first_step, end_step):
            taken[place.max_length] = taken.get(place.max_length, 0) + (end - start) * place.global_batch_size
        return taken

    def require_shares(self, ranks: Ranks, *, first_step: int) -> None:
        """Raise ConfigError if a step from `first_step` on has no sequence for a rank."""
        for place, _, _ in self.stretches(first_step, self.num_steps):
            share_of(place, ranks)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Sequence lengths of the phases that the run reaches, shortest first."""
        return tuple(sorted(self.sequences(0, self.num_steps)))

    def place(self, step: int) -> Place:
        """Return the place before `step`, 0-based; past the last step, the place in the last phase."""
        consumed: dict[int, int] = {}
        index = 0
        while step >= self.phases[index].steps and index < len(self.phases) - 1:
            earlier = self.phases[index]
            taken = consumed.get(earlier.max_length, 0)
            consumed[earlier.max_length] = taken + earlier.steps * earlier.global_batch_size
            step, index = step - earlier.steps, index + 1
        length, size = self.phases[index].max_length, self.phases[index].global_batch_size
        taken = consumed.get(length, 0) + step * size
        return Place(phase=index, consumed=taken, max_length=length, global_batch_size=size)

    def stretches(self, first_step: int, end_step: int) -> Iterator[tuple[Place, int, int]]:
        """Split the steps `first_step` to `end_step` by phase: yield the place before the first, that step, the end."""
        phase_start = 0
        for phase in self.phases:
            start, end = max(phase_start, first_step), min(phase_start + phase.steps, end_step)
            if start < end:
                yield self.place(start), start, end
            phase_start += phase.steps


def share_of(place: Place, ranks: Ranks) -> range:
    """Return the positions that one rank takes in the step, in the order of the examples of the place's length.

    The ranks' shares are consecutive; their sizes differ by one example if the batch does not divide evenly.
    ConfigError if a rank would get no sequence.

    >>> from bertline.training.devices import Ranks
    >>> place = Place(phase=0, consumed=100, max_length=64, global_batch_size=5)
    >>> [list(share_of(place, Ranks(rank=rank, world_size=2, local_rank=rank))) for rank in (0, 1)]
    [[100, 101], [102, 103, 104]]
    """
    size, first, world_size = place.global_batch_size, place.consumed, ranks.world_size
    if size < world_size:
        raise ConfigError(
            f"pretrain.phases[{place.phase}].global_batch_size is {size}, fewer than the {world_size} devices. "
            "Give every device at least one sequence a step."
        )
    return range(first + size * ranks.rank // world_size, first + size * (ranks.rank + 1) // world_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLayout:
    """Layout of the sequences of one length in rows of micro-batches, and the kernel that computes attention in it."""

    packed: bool
    """Whether sequences share rows; else each has a padded row of its own."""
    rows: int | None
    """Rows per micro-batch; None: the whole share of a step."""
    attention: AttentionChoice = _PLAIN


def pretraining_attention(
    runtime: RuntimeConfig, model: ModelConfig, device: AttentionDevice, length: int
) -> AttentionChoice:
    """Choose the attention kernel for sequences of this length; MachineError if `varlen` is not available."""
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
    # If attention computes whole rows, masking other sequences costs about as much as the padding at this fill.
    return attention == "varlen" or fill < 0.85


def rows_at_once(runtime: RuntimeConfig, length: int) -> int | None:
    """Return the rows per micro-batch on one device, at least one; None: the whole share of a step."""
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
    """Return the row layout for each length, whose padded rows have such a part of real tokens."""
    layouts = {}
    for length, fill in fills.items():
        attention = pretraining_attention(runtime, model, device, length)
        packed = packs(runtime, fill=fill, attention=attention.kind)
        layouts[length] = RowLayout(packed=packed, rows=rows_at_once(runtime, length), attention=attention)
    return layouts


def frozen_layout(
    layouts: Mapping[int, RowLayout], *, model: ModelConfig, device: str, num_ranks: int
) -> dict[str, Any]:
    """Return, as plain data for the checkpoint, what dropout masks depend on besides seed and step.

    On a CPU, eager and plain attention have the masks of `modeling.dropout.TokenMasks`, which no layout changes:
    `drawn_on` is None, as without dropout. Other devices, fused kernels and wrapped models draw masks in the order in
    which they compute.
    """
    attention_drops = model.attention_probs_dropout_prob > 0
    drops = attention_drops or model.hidden_dropout_prob or any(v for k, v in model.own.items() if "dropout" in k)
    is_fused = any(one.attention.kind not in ("eager", "plain") for one in layouts.values())
    is_drawn = device != "cpu" or (attention_drops and is_fused) or not FAMILIES[model.family].can("masks_by_token")
    lengths = {
        str(length): {"packed": one.packed, "rows": one.rows, "attention": one.attention.kind}
        for length, one in layouts.items()
    }
    return {"drawn_on": _drawn_on(device, num_ranks) if drops and is_drawn else None, "lengths": lengths}


def _drawn_on(device: str, num_ranks: int) -> str:
    return f"{num_ranks} {device} device{'s' if num_ranks > 1 else ''}"


def resumed_layout(
    frozen: Mapping[str, Any], layouts: Mapping[int, RowLayout], *, model: ModelConfig, device: str, num_ranks: int
) -> tuple[dict[int, RowLayout], dict[str, Any], str | None]:
    """Return the layouts of a resumed run, those that it began with where its dropout masks depend on them.

    The second value is their `frozen_layout`, the third a warning: that the runtime section's layouts are not used, or
    that the masks change all the same. `frozen` is that of the checkpoint; empty for a new run.
    """
    resumed = dict(layouts)
    if frozen.get("drawn_on") == _drawn_on(device, num_ranks):
        for length in layouts.keys() & map(int, frozen["lengths"]):
            began, attention = frozen["lengths"][str(length)], layouts[length].attention
            if model.attention_probs_dropout_prob > 0 and attention.kind != began["attention"]:
                attention = AttentionChoice(began["attention"], "as the run began")
            resumed[length] = RowLayout(packed=began["packed"], rows=began["rows"], attention=attention)
    now, warning = frozen_layout(resumed, model=model, device=device, num_ranks=num_ranks), None
    if frozen and frozen["drawn_on"] != now["drawn_on"]:
        was, is_now = (one["drawn_on"] or "a CPU with eager or plain attention" for one in (frozen, now))
        warning = f"the run began with the dropout masks of {was}; from here on they are those of {is_now}"
    elif any(replace(one, rows=one.rows or resumed[length].rows) != resumed[length] for length, one in layouts.items()):
        rows = "; ".join(
            f"{one.rows or 'all'} {'packed' if one.packed else 'padded'} rows of {length} tokens at once, "
            f"{one.attention.kind}"
            for length, one in resumed.items()
        )
        warning = (
            "packing, attention and micro-batches of the runtime section are not used: the dropout masks of the run "
            f"depend on those that it began with ({rows}). For others, train from scratch in another run folder."
        )
    return resumed, now, warning


def layouts_in_words(
    layouts: Mapping[int, RowLayout], fills: Mapping[int, float], model: ModelConfig, device: AttentionDevice
) -> str:
    """Describe the chosen layouts and attention kernels with the reasons, for the log: no slow path is silent."""
    parts = []
    for length, layout in layouts.items():
        fill, (kind, reason) = fills[length], layout.attention
        if layout.packed:
            rows = f"packed rows of {length} tokens ({fill:.0%} if padded)"
        else:  # rounded down, so that rows that need a mask never look full
            rows = f"padded rows of {length} tokens ({int(100 * fill)}% real)"
        parts.append(f"{rows}, attention {kind} ({reason})")
    dropout = model.attention_probs_dropout_prob
    return f"on {device.type} in {device.precision}, attention dropout {dropout:g}: {'; '.join(parts)}"
