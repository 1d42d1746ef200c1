"""Choosing and hiding the targets of masked language modelling.

Every choice is a pure function of (seed, epoch, example id, position): no generator has a state that workers, ranks or
a resumed run would have to share. The random numbers are SplitMix64's. An example's stream starts at a key made from
seed, epoch and example id, and position p owns its outputs 3p, 3p + 1 and 3p + 2: the first decides whether p is a
target, the second what is shown there, the third which random piece. The output after those of the last position that
there can be decides how many targets the example has. As any output can be computed without the ones before it, a whole
batch is one array expression, and yet each row is what it would be alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bertline.examples.store import Array, Example
from bertline.foundation.seeds import seed_for

_OUTPUTS_PER_POSITION = 3
_POSITION_BITS = 16
_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""SplitMix64's increment, 2**64 divided by the golden ratio (Steele, Lea and Flood 2014, section 4)."""
_POSITION_MASK = np.uint64((1 << _POSITION_BITS) - 1)
_OUTPUT_FOR_NUMBER = np.array([_OUTPUTS_PER_POSITION << _POSITION_BITS], dtype=np.uint64)
_NEVER = np.uint64(0xFFFFFFFFFFFFFFFF)
UNUSED_LABEL = -100
"""The label of a place without a target: the one that torch's cross-entropy ignores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskingPolicy:
    """How targets are chosen and shown, and the facts of the vocabulary that this needs."""

    mask_prob: float
    replace_with_mask_prob: float
    replace_with_random_prob: float
    static: bool
    """One mask for good: the epoch is ignored."""
    vocab_size: int
    pad_id: int
    mask_id: int
    special_ids: tuple[int, ...]
    """Never targets, never shown as a random replacement."""


@dataclass(frozen=True, slots=True)
class MaskedExample:
    """An example with its targets hidden, without padding."""

    input_ids: Array
    """[length] int64, as the model sees it."""
    token_type_ids: Array
    """[length] int64."""
    masked_positions: Array
    """[targets] int64, ascending."""
    masked_labels: Array
    """[targets] int64: the true piece ids."""
    next_sentence_label: int
    """1 = random next."""


@dataclass(frozen=True, slots=True)
class MaskedRows:
    """B padded rows with their targets hidden."""

    input_ids: Array
    """[B, S] int64."""
    masked_positions: Array
    """[B, P] int64, ascending, 0 where unused."""
    masked_labels: Array
    """[B, P] int64, `UNUSED_LABEL` where unused."""


def masking_policy(manifest: Mapping[str, Any]) -> MaskingPolicy:
    """The policy that an examples manifest describes (its `masking`, `vocab_size` and `special_ids`)."""
    masking, special_ids = manifest["masking"], manifest["special_ids"]
    return MaskingPolicy(
        mask_prob=masking["mask_prob"],
        replace_with_mask_prob=masking["replace_with_mask_prob"],
        replace_with_random_prob=masking["replace_with_random_prob"],
        static=masking["kind"] == "static",
        vocab_size=manifest["vocab_size"],
        pad_id=special_ids["[PAD]"],
        mask_id=special_ids["[MASK]"],
        special_ids=tuple(sorted(special_ids.values())),
    )


def max_targets(max_length: int, mask_prob: float) -> int:
    """Most targets that a sequence pair of `max_length` tokens, three of them special, can have.

    Example:
        >>> max_targets(64, 0.15), max_targets(128, 0.15), max_targets(512, 0.15)
        (10, 19, 77)
    """
    return max(1, math.ceil(mask_prob * (max_length - 3)))


def mask_example(example: Example, *, seed: int, epoch: int, example_id: int, policy: MaskingPolicy) -> MaskedExample:
    """Hide the targets of one example: a pure function of its arguments.

    `mask_prob` of the maskable tokens become targets, at least one (none if nothing can be masked), each set of that
    size being equally likely. Where that is no whole number, chance rounds it up or down, in proportion, so that over
    many examples it is the share asked for: of 29 tokens, 15 % are four targets or five. Of these,
    `replace_with_mask_prob` show [MASK], `replace_with_random_prob` a random ordinary piece (which may be the true
    one), and the rest the true piece.

    Notes:
        The reference code (google-research/bert, create_pretraining_data.py) takes the share of all tokens, [CLS] and
        [SEP] included, and rounds to the nearest number, which in short sequences is another share; it lets [UNK] be a
        target, and any piece, even a special one, be the random replacement.

    References:
        Devlin et al. 2018, arXiv 1810.04805, section 3.1 and A.1.
    """
    rows = mask_rows(
        example.input_ids[None].astype(np.int64),
        np.array([example_id]),
        seed=seed,
        epoch=epoch,
        policy=policy,
        num_columns=len(example.input_ids),
    )
    used = rows.masked_labels[0] != UNUSED_LABEL
    return MaskedExample(
        input_ids=rows.input_ids[0],
        token_type_ids=example.token_type_ids,
        masked_positions=rows.masked_positions[0, used],
        masked_labels=rows.masked_labels[0, used],
        next_sentence_label=example.next_sentence_label,
    )


def mask_rows(
    input_ids: Array, example_ids: Array, *, seed: int, epoch: int, policy: MaskingPolicy, num_columns: int
) -> MaskedRows:
    """`mask_example` for padded rows at once: row i depends on nothing but itself and `example_ids[i]`.

    Args:
        input_ids: [B, S] int64; changed in no place.
        example_ids: [B].
        seed: The root seed of the masks.
        epoch: Counted from 0; ignored by a static policy.
        policy: How to mask.
        num_columns: P, places for targets a row (`max_targets`).
    """
    maskable_pieces, ordinary_pieces = _piece_tables(policy)
    maskable = maskable_pieces[input_ids]
    keys = _example_keys(example_ids, seed=seed, epoch=0 if policy.static else epoch)
    num_targets = _num_targets(keys, maskable.sum(axis=1), policy.mask_prob)
    positions = _lowest_positions(keys, maskable, num_targets, num_columns)
    used = positions < input_ids.shape[1]
    positions = np.where(used, positions, 0)
    labels = np.take_along_axis(input_ids, positions, axis=1)

    counters = positions.astype(np.uint64) * np.uint64(_OUTPUTS_PER_POSITION)
    action = _unit_interval(_output(keys[:, None], counters + np.uint64(1)))
    # The high 32 bits scaled to the table: a remainder would favour low ids, if by very little.
    drawn = (_output(keys[:, None], counters + np.uint64(2)) >> np.uint64(32)) * np.uint64(len(ordinary_pieces))
    random_pieces = ordinary_pieces[(drawn >> np.uint64(32)).astype(np.int64)]
    show_mask = action < policy.replace_with_mask_prob
    show_random = ~show_mask & (action < policy.replace_with_mask_prob + policy.replace_with_random_prob)
    shown = np.where(show_mask, policy.mask_id, np.where(show_random, random_pieces, labels))

    masked = input_ids.copy()
    rows, columns = np.nonzero(used)
    masked[rows, positions[rows, columns]] = shown[rows, columns]
    return MaskedRows(masked, positions, np.where(used, labels, UNUSED_LABEL))


def _num_targets(keys: Array, num_maskable: Array, mask_prob: float) -> Array:
    """[B] `mask_prob` of the maskable tokens, rounded up as often as the fraction says; at least 1 where it can be."""
    share = mask_prob * num_maskable
    whole = np.floor(share)
    rounded = whole + (_unit_interval(_output(keys, _OUTPUT_FOR_NUMBER)) < share - whole)
    return np.minimum(np.maximum(1, rounded).astype(np.int64), num_maskable)


def _lowest_positions(keys: Array, maskable: Array, num_targets: Array, num_columns: int) -> Array:
    """[B, P] the `num_targets` maskable positions with the lowest random numbers, ascending; S where unused."""
    length = maskable.shape[1]
    columns = np.arange(length, dtype=np.uint64)
    scores = _output(keys[:, None], columns * np.uint64(_OUTPUTS_PER_POSITION))
    # The position takes the lowest bits: no two scores are equal, so any way of sorting gives one order, and a sort
    # of values, which is much faster than one of indices, tells where each came from.
    scores = np.where(maskable, (scores & ~_POSITION_MASK) | columns, _NEVER)
    lowest = np.sort(scores, axis=1)[:, :num_columns]
    positions = (lowest & _POSITION_MASK).astype(np.int64)
    positions[np.arange(positions.shape[1]) >= num_targets[:, None]] = length
    return np.sort(positions, axis=1)


@lru_cache(maxsize=8)
def _piece_tables(policy: MaskingPolicy) -> tuple[Array, Array]:
    """[vocab_size] whether a piece may be a target; and the ids of those that may."""
    maskable = np.ones(policy.vocab_size, dtype=bool)
    maskable[list(policy.special_ids)] = False
    return maskable, np.flatnonzero(maskable)


def _example_keys(example_ids: Array, *, seed: int, epoch: int) -> npt.NDArray[np.uint64]:
    """[B] the start of each example's stream: outputs of the stream that seed and epoch name, at the example ids."""
    key = np.uint64(seed_for(seed, "mask", epoch))
    return _output(np.full(1, key), np.asarray(example_ids).astype(np.uint64))


def _output(keys: npt.NDArray[np.uint64], counters: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's output number `counters`, from 0, of the streams that start at `keys`.

    Example:
        >>> _output(np.zeros(1, dtype=np.uint64), np.arange(2, dtype=np.uint64)).tolist()
        [16294208416658607535, 7960286522194355700]
    """
    state = keys + (counters + np.uint64(1)) * _GOLDEN_GAMMA
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _unit_interval(outputs: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """[0, 1) from the 53 high bits, all that a double holds."""
    return (outputs >> np.uint64(11)).astype(np.float64) * 2.0**-53
