"""Masking for masked language modelling: choosing the targets, replacing them in the input, and padded batches.

Every choice is a pure function of (seed, epoch, example id, position): there is no generator state for workers, ranks
or a resumed run to share. The random numbers are those of SplitMix64. Each example has a stream that starts at a key
derived from seed, epoch and example id. Position p uses the outputs 3p, 3p + 1 and 3p + 2 of the stream: the first
decides whether p is a target, the second how it is replaced, the third which random token replaces it. The output after
those of the largest possible position decides the number of targets. Any output can be computed without the preceding
ones, so a batch is one array expression, and each row has the same result as when it is masked alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bertline.examples.store import Array, Example, ExampleStore
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.seeds import seed_for
from bertline.tokenization.vocabulary import MASK, PAD

_OUTPUTS_PER_POSITION = 3
_POSITION_BITS = 16
_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""Increment of SplitMix64: 2**64 divided by the golden ratio (Steele, Lea and Flood 2014, section 4)."""
_POSITION_MASK = np.uint64((1 << _POSITION_BITS) - 1)
_OUTPUT_FOR_NUMBER = np.array([_OUTPUTS_PER_POSITION << _POSITION_BITS], dtype=np.uint64)
_NEVER = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskingPolicy:
    """Settings for choosing and replacing targets, and the vocabulary data that masking needs."""

    mask_prob: float
    replace_with_mask_prob: float
    replace_with_random_prob: float
    static: bool
    """Whether masks are the same in every epoch."""
    vocab_size: int
    pad_id: int
    mask_id: int
    special_ids: tuple[int, ...]
    """Ids of special tokens, which are never targets and never random replacements."""


@dataclass(frozen=True, slots=True)
class MaskedExample:
    """A masked example without padding."""

    input_ids: Array
    """[length] int64, with targets replaced: the model's input."""
    token_type_ids: Array
    """[length] int64."""
    masked_positions: Array
    """[targets] int64, ascending."""
    masked_labels: Array
    """[targets] int64, the true token ids."""
    next_sentence_label: int
    """1 = random next."""


@dataclass(frozen=True, slots=True)
class MaskedRows:
    """B padded and masked rows."""

    input_ids: Array
    """[B, S] int64."""
    masked_positions: Array
    """[B, P] int64, ascending, 0 where unused."""
    masked_labels: Array
    """[B, P] int64, `IGNORED_LABEL` where unused."""


def masking_policy(manifest: Mapping[str, Any]) -> MaskingPolicy:
    """Return the masking policy of an examples manifest (its `masking`, `vocab_size` and `special_ids`)."""
    masking, special_ids = manifest["masking"], manifest["special_ids"]
    return MaskingPolicy(
        mask_prob=masking["mask_prob"],
        replace_with_mask_prob=masking["replace_with_mask_prob"],
        replace_with_random_prob=masking["replace_with_random_prob"],
        static=masking["kind"] == "static",
        vocab_size=manifest["vocab_size"],
        pad_id=special_ids[PAD],
        mask_id=special_ids[MASK],
        special_ids=tuple(sorted(special_ids.values())),
    )


def max_targets(max_length: int, mask_prob: float, *, num_segments: int = 2) -> int:
    """Return the maximum number of targets of a sequence of `max_length` tokens, special ones included.

    Example:
        >>> max_targets(64, 0.15), max_targets(128, 0.15), max_targets(512, 0.15)
        (10, 19, 77)
    """
    return max(1, math.ceil(mask_prob * (max_length - 1 - num_segments)))


def mask_example(example: Example, *, seed: int, epoch: int, example_id: int, policy: MaskingPolicy) -> MaskedExample:
    """Mask one example; a pure function of its arguments.

    A fraction `mask_prob` of the maskable tokens become targets, at least one (none if nothing can be masked); all sets
    of that size are equally likely. A fractional number of targets is rounded up or down at random with the
    probability that makes its expectation exact: 15 % of 29 tokens are four or five targets. Of the targets,
    `replace_with_mask_prob` become [MASK], `replace_with_random_prob` a random non-special token (possibly the true
    one), and the rest stay unchanged.

    Notes:
        The reference code (google-research/bert, create_pretraining_data.py) takes the fraction of all tokens,
        including [CLS] and [SEP], and rounds to the nearest number, which gives a different fraction in short
        sequences; [UNK] can be a target, and any token, even a special one, can be the random replacement.

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
    used = rows.masked_labels[0] != IGNORED_LABEL
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
    """Apply `mask_example` to a batch of padded rows; row i depends only on its tokens and `example_ids[i]`.

    Args:
        input_ids: [B, S] int64; not modified.
        example_ids: [B].
        seed: Root seed of the masks.
        epoch: Epoch number, from 0; ignored if the policy is static.
        policy: The masking policy.
        num_columns: P, maximum number of targets per row (`max_targets`).
    """
    maskable_tokens, ordinary_tokens = _token_tables(policy)
    maskable = maskable_tokens[input_ids]
    keys = _example_keys(example_ids, seed=seed, epoch=0 if policy.static else epoch)
    num_targets = _num_targets(keys, maskable.sum(axis=1), policy.mask_prob)
    positions = _lowest_positions(keys, maskable, num_targets, num_columns)
    used = positions < input_ids.shape[1]
    positions = np.where(used, positions, 0)
    labels = np.take_along_axis(input_ids, positions, axis=1)

    counters = positions.astype(np.uint64) * np.uint64(_OUTPUTS_PER_POSITION)
    action = _unit_interval(_output(keys[:, None], counters + np.uint64(1)))
    # The high 32 bits scaled to the table size: the modulo would favour low ids slightly.
    drawn = (_output(keys[:, None], counters + np.uint64(2)) >> np.uint64(32)) * np.uint64(len(ordinary_tokens))
    random_tokens = ordinary_tokens[(drawn >> np.uint64(32)).astype(np.int64)]
    show_mask = action < policy.replace_with_mask_prob
    show_random = ~show_mask & (action < policy.replace_with_mask_prob + policy.replace_with_random_prob)
    shown = np.where(show_mask, policy.mask_id, np.where(show_random, random_tokens, labels))

    masked = input_ids.copy()
    rows, columns = np.nonzero(used)
    masked[rows, positions[rows, columns]] = shown[rows, columns]
    return MaskedRows(masked, positions, np.where(used, labels, IGNORED_LABEL))


def target_draws(example_ids: Array, positions: Array, *, seed: int, epoch: int) -> Array:
    """Return [B, P] a random number from 0 to 2**31 - 1 for each position of the examples [B], int64.

    A pure function of (seed, epoch, example id, position), from a stream of its own: what a generator picks there.
    """
    keys = _example_keys(example_ids, seed=seed, epoch=epoch, purpose="draw")
    return (_output(keys[:, None], positions.astype(np.uint64)) >> np.uint64(33)).astype(np.int64)


def _num_targets(keys: Array, num_maskable: Array, mask_prob: float) -> Array:
    """Return [B] numbers of targets: `mask_prob` of the maskable tokens, randomly rounded to keep the expectation.

    At least 1 for rows with maskable tokens.
    """
    share = mask_prob * num_maskable
    whole = np.floor(share)
    rounded = whole + (_unit_interval(_output(keys, _OUTPUT_FOR_NUMBER)) < share - whole)
    return np.minimum(np.maximum(1, rounded).astype(np.int64), num_maskable)


def _lowest_positions(keys: Array, maskable: Array, num_targets: Array, num_columns: int) -> Array:
    """Return [B, P] the `num_targets` maskable positions with the lowest random numbers, ascending; S where unused."""
    length = maskable.shape[1]
    columns = np.arange(length, dtype=np.uint64)
    scores = _output(keys[:, None], columns * np.uint64(_OUTPUTS_PER_POSITION))
    # The lowest bits hold the position: all keys are distinct, so every sorting algorithm gives the same order, and
    # np.sort returns the positions too, much faster than np.argsort.
    scores = np.where(maskable, (scores & ~_POSITION_MASK) | columns, _NEVER)
    lowest = np.sort(scores, axis=1)[:, :num_columns]
    positions = (lowest & _POSITION_MASK).astype(np.int64)
    positions[np.arange(positions.shape[1]) >= num_targets[:, None]] = length
    return np.sort(positions, axis=1)


@lru_cache(maxsize=8)
def _token_tables(policy: MaskingPolicy) -> tuple[Array, Array]:
    """Return [vocab_size] whether each token may be a target, and the ids of tokens that may."""
    maskable = np.ones(policy.vocab_size, dtype=bool)
    maskable[list(policy.special_ids)] = False
    return maskable, np.flatnonzero(maskable)


def _example_keys(example_ids: Array, *, seed: int, epoch: int, purpose: str = "mask") -> npt.NDArray[np.uint64]:
    """Return [B] start keys of the examples' streams: output `example_id` of the stream of seed and epoch."""
    key = np.uint64(seed_for(seed, purpose, epoch))
    return _output(np.full(1, key), np.asarray(example_ids).astype(np.uint64))


def _output(keys: npt.NDArray[np.uint64], counters: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the SplitMix64 outputs with the numbers `counters`, from 0, of the streams that start at `keys`.

    Example:
        >>> _output(np.zeros(1, dtype=np.uint64), np.arange(2, dtype=np.uint64)).tolist()
        [16294208416658607535, 7960286522194355700]
    """
    state = keys + (counters + np.uint64(1)) * _GOLDEN_GAMMA
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _unit_interval(outputs: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Map outputs to [0, 1) by their 53 high bits, the precision of a double."""
    return (outputs >> np.uint64(11)).astype(np.float64) * 2.0**-53


def masked_batch(
    store: ExampleStore, indices: npt.ArrayLike, *, epoch: int, seed: int, policy: MaskingPolicy
) -> dict[str, Array]:
    """Read, mask and pad the examples at `indices` as one vectorised batch.

    Equal to `mask_example` for each example, then padding, in about a twentieth of the time. Rows are padded to
    `store.max_length`, so the batch shape depends only on the number of examples.

    Returns:
        Arrays for B examples, S = `store.max_length`, P = `max_targets`, all int64: `input_ids` [B, S];
        `token_type_ids` [B, S], 0 in padding, and everywhere if the tokenizer has one type; `attention_mask` [B, S], 1
        for real tokens; `masked_positions` [B, P], 0 where unused; `masked_labels` [B, P], -100 where unused;
        `next_sentence_labels` [B], 1 = random next.
    """
    example_ids = np.asarray(indices, dtype=np.int64)
    examples = store.padded(example_ids)
    num_columns = max_targets(store.max_length, policy.mask_prob, num_segments=store.num_segments)
    rows = mask_rows(examples.input_ids, example_ids, seed=seed, epoch=epoch, policy=policy, num_columns=num_columns)
    columns = np.arange(store.max_length)
    attention_mask = columns < examples.lengths[:, None]
    in_second = (columns >= examples.first_segment_lengths[:, None]) & attention_mask
    return {
        "input_ids": rows.input_ids,
        "token_type_ids": in_second.astype(np.int64) * store.layout.second_type,
        "attention_mask": attention_mask.astype(np.int64),
        "masked_positions": rows.masked_positions,
        "masked_labels": rows.masked_labels,
        # The labels are a strided column of the store's records. A step at the end of an epoch concatenates two
        # batches, which makes them contiguous; without a copy here, the different strides would cause recompilation.
        "next_sentence_labels": np.ascontiguousarray(examples.next_sentence_labels),
    }
