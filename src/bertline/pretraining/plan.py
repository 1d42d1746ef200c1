"""Which examples each step takes: the plan over the phases, and the order of the examples in an epoch.

Both are pure functions: of the step and the phases, and of seed and epoch. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bertline.foundation.errors import ConfigError
from bertline.foundation.seeds import generator
from bertline.pretraining.config import PhaseConfig, PretrainConfig
from bertline.training.devices import Ranks

_NUM_ROUNDS = 6
# The two multipliers of splitmix64's finaliser (Steele, Lea, Flood, OOPSLA 2014), which spreads every input bit.
_SPREAD_1 = np.uint64(0xBF58476D1CE4E5B9)
_SPREAD_2 = np.uint64(0x94D049BB133111EB)


def shuffled(positions: np.ndarray, size: int, *, seed: int, epoch: int) -> np.ndarray:
    """Return the examples at these positions, in `[0, size)`, of the order after `epoch` whole passes.

    The order is a keyed permutation of `0 .. size - 1`: a Feistel network over the next power of four, applied
    repeatedly until the value is below `size` (cycle walking). Every position costs the same, so a resumed run starts
    anywhere at once, and no process holds a table of the whole order.

    Returns:
        int64 example ids in `[0, size)`, with the shape of `positions`; over all positions, every id occurs once.

    References:
        Black and Rogaway, Ciphers with Arbitrary Finite Domains (CT-RSA 2002), methods 2 and 3.

    Example:
        >>> shuffled(np.arange(10), 10, seed=0, epoch=0).tolist()
        [8, 6, 1, 2, 5, 3, 9, 0, 7, 4]
    """
    half_bits = max(1, -(-(size - 1).bit_length() // 2))
    keys = generator(seed, "order", epoch).integers(0, 2**63, size=_NUM_ROUNDS, dtype=np.uint64)
    walked = _permute(positions.astype(np.uint64), half_bits, keys)
    while (outside := walked >= size).any():
        walked[outside] = _permute(walked[outside], half_bits, keys)
    return walked.astype(np.int64)


def _permute(values: np.ndarray, half_bits: int, keys: np.ndarray) -> np.ndarray:
    """Apply the Feistel network once to values of `2 * half_bits` bits."""
    mask, shift = np.uint64((1 << half_bits) - 1), np.uint64(half_bits)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (_spread(right ^ key) & mask)
    return (left << shift) | right


def _spread(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * _SPREAD_1
    values = (values ^ (values >> np.uint64(27))) * _SPREAD_2
    return values ^ (values >> np.uint64(31))


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Position of training before a step."""

    phase: int
    """Index into `pretrain.phases`."""
    consumed: int
    """Number of examples of this phase's length taken or skipped so far, including in earlier phases of this length."""
    max_length: int
    global_batch_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedSequences:
    """Examples that are skipped because training failed on them: the order of their length jumps ahead."""

    step: int
    """First step after the jump, 0-based."""
    max_length: int
    sequences: int


@dataclass
class Plan:
    """The steps of a run, over all phases.

    Example:
        >>> phases = [PhaseConfig(steps=2, max_length=64, global_batch_size=8),
        ...           PhaseConfig(steps=9, max_length=64, global_batch_size=32)]
        >>> Plan(phases, num_steps=5).place(3)
        Place(phase=1, consumed=48, max_length=64, global_batch_size=32)
    """

    phases: Sequence[PhaseConfig]
    num_steps: int
    """Steps of the whole run, at most the sum over all phases."""
    skipped: Sequence[SkippedSequences] = ()
    """Jumps in the order of the examples."""

    @classmethod
    def of(cls, config: PretrainConfig) -> Plan:
        """Return the plan that the pretrain section configures."""
        return cls(config.phases, config.num_steps)

    def skipping(self, first_step: int, end_step: int) -> list[SkippedSequences]:
        """Return the examples to skip, by length, so that step `first_step` takes those planned for `end_step`.

        Example:
            >>> plan = Plan([PhaseConfig(steps=9, max_length=64, global_batch_size=8)], num_steps=9)
            >>> plan.skipping(4, 6)
            [SkippedSequences(step=4, max_length=64, sequences=16)]
        """
        taken = self.sequences(first_step, end_step)
        return [SkippedSequences(step=first_step, max_length=length, sequences=num) for length, num in taken.items()]

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
        for jump in self.skipped:
            if jump.step <= step:
                consumed[jump.max_length] = consumed.get(jump.max_length, 0) + jump.sequences
        index = 0
        while step >= self.phases[index].steps and index < len(self.phases) - 1:
            earlier = self.phases[index]
            taken = consumed.get(earlier.max_length, 0)
            consumed[earlier.max_length] = taken + earlier.steps * earlier.global_batch_size
            step, index = step - earlier.steps, index + 1
        length, size = self.phases[index].max_length, self.phases[index].global_batch_size
        taken = consumed.get(length, 0) + step * size
        return Place(phase=index, consumed=taken, max_length=length, global_batch_size=size)

    def starts_like(self, other: Plan) -> bool:
        """Return whether all steps of `other` take the same examples in this plan, as extending a run requires."""
        if other.num_steps > self.num_steps:
            return False
        starts = (*other._phase_starts(), *(start for start in self._phase_starts() if start < other.num_steps))
        lasts = [start - 1 for start in starts if start > 0]
        steps = (*starts, *lasts, other.num_steps - 1)
        return all(replace(self.place(step), phase=0) == replace(other.place(step), phase=0) for step in steps)

    def stretches(self, first_step: int, end_step: int) -> Iterator[tuple[Place, int, int]]:
        """Split the steps `first_step` to `end_step` by phase: yield the place before the first, that step, the end."""
        starts = self._phase_starts()
        for start, end in zip(starts, [*starts[1:], end_step], strict=True):
            start, end = max(start, first_step), min(end, end_step)
            if start < end:
                yield self.place(start), start, end

    def _phase_starts(self) -> list[int]:
        starts, start = [], 0
        for phase in self.phases:
            if start < self.num_steps:
                starts.append(start)
            start += phase.steps
        return starts


def share_of(place: Place, ranks: Ranks) -> range:
    """Return the positions that one rank takes in the step, in the order of the examples of the place's length.

    The ranks' shares are consecutive; their sizes differ by one example if the batch does not divide evenly.

    Raises:
        ConfigError: A rank would get no sequence.

    Example:
        >>> place = Place(phase=0, consumed=100, max_length=64, global_batch_size=5)
        >>> [list(share_of(place, Ranks(rank=rank, world_size=2, local_rank=rank))) for rank in (0, 1)]
        [[100, 101], [102, 103, 104]]
    """
    size, world_size = place.global_batch_size, ranks.world_size
    if size < world_size:
        raise ConfigError(
            f"pretrain.phases[{place.phase}].global_batch_size is {size}, fewer than the {world_size} devices. "
            "Give every device at least one sequence a step."
        )
    return range(
        place.consumed + size * ranks.rank // world_size, place.consumed + size * (ranks.rank + 1) // world_size
    )
