"""Masking for masked language modelling: choosing the targets, replacing them in the input, and padded batches.

Every choice is a pure function of (seed, epoch, example id, position): there is no generator state for workers, ranks
or a resumed run to share. Each example has a stream of SplitMix64 that starts at a key derived from seed, epoch and
example id. Of its outputs, 3p decides whether position p is a target, 3p + 1 how it is replaced, 3p + 2 which random
token replaces it; the one after those of the largest position decides the number of targets, and those behind it the
length of a span that begins at p. Any output can be computed without the preceding ones, so a batch is one array
expression, and each row has the same result as when it is masked alone.
"""

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bertline.examples.store import Array, Example, ExampleStore
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.seeds import seed_for, spread_bits
from bertline.tokenization.vocabulary import MASK, PAD

_OUTPUTS_PER_POSITION = 3
_POSITION_BITS = 16
# Increment of SplitMix64: 2**64 divided by the golden ratio (Steele, Lea and Flood 2014, section 4).
_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_POSITION_MASK = np.uint64((1 << _POSITION_BITS) - 1)
_OUTPUT_FOR_NUMBER = np.array([_OUTPUTS_PER_POSITION << _POSITION_BITS], dtype=np.uint64)
_NEVER = np.uint64(0xFFFFFFFFFFFFFFFF)
_MAX_SPAN_WORDS, _SPAN_END_PROB = 10, 0.2
_SPAN_WORDS = (1 - (1 - _SPAN_END_PROB) ** np.arange(1, _MAX_SPAN_WORDS)) / (
    1 - (1 - _SPAN_END_PROB) ** _MAX_SPAN_WORDS
)
"""[9] probabilities that a span has at most 1, 2, ... 9 words; the mean is 3.8 (SpanBERT, section 3.1)."""


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
    unit: Literal["token", "word", "span"] = "token"
    """What is chosen at once; see `mask_example`."""
    word_starts: bytes = b""
    """For `word` and `span`: whether each token begins a word, as bits of `numpy.packbits`."""


class MaskedRows(NamedTuple):
    """B padded and masked rows, or one example without padding and B; all arrays are int64."""

    input_ids: Array
    """[B, S], with targets replaced: the model's input."""
    masked_positions: Array
    """[B, P], ascending, 0 where unused."""
    masked_labels: Array
    """[B, P], the true token ids, `IGNORED_LABEL` where unused."""


def masking_policy(manifest: Mapping[str, Any]) -> MaskingPolicy:
    """Return the masking policy of an examples manifest (its `masking`, `vocab_size` and `special_ids`)."""
    masking, special_ids = manifest["masking"], manifest["special_ids"]
    return MaskingPolicy(
        **{name: masking[name] for name in ("mask_prob", "replace_with_mask_prob", "replace_with_random_prob")},
        static=masking["kind"] == "static",
        vocab_size=manifest["vocab_size"],
        pad_id=special_ids[PAD],
        mask_id=special_ids[MASK],
        special_ids=tuple(sorted(special_ids.values())),
        unit=masking.get("unit", "token"),
        word_starts=base64.b64decode(manifest.get("word_starts", "")),
    )


def max_targets(max_length: int, mask_prob: float, *, num_segments: int = 2) -> int:
    """Return the maximum number of targets of a sequence of `max_length` tokens, special ones included.

    >>> max_targets(64, 0.15), max_targets(128, 0.15), max_targets(512, 0.15)
    (10, 19, 77)
    """
    return max(1, math.ceil(mask_prob * (max_length - 1 - num_segments)))


def mask_example(example: Example, *, seed: int, epoch: int, example_id: int, policy: MaskingPolicy) -> MaskedRows:
    """Mask one example; a pure function of its arguments.

    A fraction `mask_prob` of the maskable tokens become targets, at least one (none if nothing can be masked); all sets
    of that size are equally likely. A fractional number of targets is rounded up or down at random with the
    probability that makes its expectation exact: 15 % of 29 tokens are four or five targets. Of the targets,
    `replace_with_mask_prob` become [MASK], `replace_with_random_prob` a random non-special token (possibly the true
    one), and the rest stay unchanged.

    The unit `word` chooses whole words in random order, `span` runs of words whose number is geometric; all targets of
    a span are replaced alike. Both choose no more targets than `token` would: what is longer than what is left of them
    is skipped, and a span ends early. Some targets remain unused where no word is short enough; only where none is
    from the start, the beginning of one is chosen.

    Notes:
        The reference code (google-research/bert, create_pretraining_data.py) takes the fraction of all tokens,
        including [CLS] and [SEP], and rounds to the nearest number, which gives a different fraction in short
        sequences; [UNK] can be a target, and any token, even a special one, can be the random replacement.

    References: Devlin et al. 2018, arXiv 1810.04805, section 3.1 and A.1; whole words: google-research/bert, README, 31
    May 2019; spans: Joshi et al., SpanBERT (arXiv 1907.10529), section 3.1.
    """
    ids, example_ids = example.input_ids[None].astype(np.int64), np.array([example_id])
    rows = mask_rows(ids, example_ids, seed=seed, epoch=epoch, policy=policy, num_columns=ids.shape[1])
    used = rows.masked_labels[0] != IGNORED_LABEL
    return MaskedRows(rows.input_ids[0], rows.masked_positions[0, used], rows.masked_labels[0, used])


def mask_rows(
    input_ids: Array, example_ids: Array, *, seed: int, epoch: int, policy: MaskingPolicy, num_columns: int
) -> MaskedRows:
    """Apply `mask_example` to padded rows [B, S] int64; row i depends only on its tokens and `example_ids[i]`.

    `epoch` is ignored if the policy is static; `num_columns` is P, the maximum number of targets per row.
    """
    maskable_tokens, ordinary_tokens, word_starts = _token_tables(policy)
    maskable = maskable_tokens[input_ids]
    keys = _example_keys(example_ids, seed=seed, epoch=0 if policy.static else epoch)
    num_targets = _num_targets(keys, maskable.sum(axis=1), policy.mask_prob)
    if policy.unit == "token":
        positions = _in_random_order(keys, maskable)[:, :num_columns]
        positions[np.arange(positions.shape[1]) >= num_targets[:, None]] = input_ids.shape[1]
        positions = spans = np.sort(positions, axis=1)
    else:
        begins = maskable & word_starts[input_ids]
        begins[:, 1:] |= maskable[:, 1:] & ~maskable[:, :-1]
        spans = _spans(keys, maskable, begins, num_targets, _MAX_SPAN_WORDS if policy.unit == "span" else 1)
        columns = np.arange(input_ids.shape[1])
        positions = np.sort(np.where(spans < 0, len(columns), columns), axis=1)[:, :num_columns]
    used = positions < input_ids.shape[1]
    positions = np.where(used, positions, 0)
    labels = np.take_along_axis(input_ids, positions, axis=1)

    counters = positions.astype(np.uint64) * np.uint64(_OUTPUTS_PER_POSITION)
    deciding = np.take_along_axis(spans, positions, axis=1) if policy.unit == "span" else positions
    deciding = deciding.astype(np.uint64) * np.uint64(_OUTPUTS_PER_POSITION)
    action = _unit_interval(_output(keys[:, None], deciding + np.uint64(1)))
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
    """Return [B] `mask_prob` of the maskable tokens, randomly rounded to keep the expectation, at least 1 if any."""
    share = mask_prob * num_maskable
    whole = np.floor(share)
    rounded = whole + (_unit_interval(_output(keys, _OUTPUT_FOR_NUMBER)) < share - whole)
    return np.minimum(np.maximum(1, rounded).astype(np.int64), num_maskable)


def _in_random_order(keys: Array, candidates: Array) -> Array:
    """Return [B, S] the positions of the candidates in the order of their random numbers, then numbers above S."""
    columns = np.arange(candidates.shape[1], dtype=np.uint64)
    scores = _output(keys[:, None], columns * np.uint64(_OUTPUTS_PER_POSITION))
    # The lowest bits hold the position: all keys are distinct, so every sorting algorithm gives the same order, and
    # np.sort returns the positions too, much faster than np.argsort.
    scores = np.where(candidates, (scores & ~_POSITION_MASK) | columns, _NEVER)
    return (np.sort(scores, axis=1) & _POSITION_MASK).astype(np.int64)


def _spans(keys: Array, maskable: Array, begins: Array, num_targets: Array, max_words: int) -> Array:
    """Return [B, S] the first position of the span that each position is in, -1 for those that are no targets."""
    length, rows = maskable.shape[1], np.arange(len(maskable))
    columns = np.arange(length)
    firsts = np.maximum.accumulate(np.where(begins, columns, 0), axis=1)  # of the word that each token is in
    in_words = (rows[:, None] * (length + 1) + firsts)[maskable]
    sizes = np.bincount(in_words, minlength=len(rows) * (length + 1)).reshape(-1, length + 1)
    spans, left = np.full_like(sizes, -1), num_targets.copy()
    order = np.minimum(_in_random_order(keys, begins), length)  # after the last word: a position without a word
    for start in order.T:
        if not left.any() or (start == length).all():
            break
        drawn = _unit_interval(_output(keys, _OUTPUT_FOR_NUMBER + np.uint64(1) + start.astype(np.uint64)))
        num_words = np.minimum(1 + np.searchsorted(_SPAN_WORDS, drawn, side="right"), max_words)
        word, continues = start, np.ones(len(rows), dtype=bool)
        for number in range(max_words):
            size = sizes[rows, word]
            continues &= (number < num_words) & (size > 0) & (size <= left) & (spans[rows, word] < 0)
            if not continues.any():
                break
            spans[rows[continues], word[continues]] = start[continues]
            left = left - size * continues
            word = np.where(continues, word + size, length)
    too_long = (left == num_targets) & (left > 0)  # each word is
    spans[rows[too_long], order[too_long, 0]] = order[too_long, 0]
    is_target = maskable & (columns - firsts < num_targets[:, None])
    return np.where(is_target, np.take_along_axis(spans, firsts, axis=1), -1)


@lru_cache(maxsize=8)
def _token_tables(policy: MaskingPolicy) -> tuple[Array, Array, Array]:
    """Return [vocab_size] whether each token may be a target, the ids of those that may, and which begin a word."""
    maskable = np.ones(policy.vocab_size, dtype=bool)
    maskable[list(policy.special_ids)] = False
    word_starts = np.unpackbits(np.frombuffer(policy.word_starts, dtype=np.uint8)).astype(bool)
    return maskable, np.flatnonzero(maskable), word_starts


def _example_keys(example_ids: Array, *, seed: int, epoch: int, purpose: str = "mask") -> npt.NDArray[np.uint64]:
    """Return [B] start keys of the examples' streams: output `example_id` of the stream of seed and epoch."""
    key = np.uint64(seed_for(seed, purpose, epoch))
    return _output(np.full(1, key), np.asarray(example_ids).astype(np.uint64))


def _output(keys: npt.NDArray[np.uint64], counters: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the SplitMix64 outputs with the numbers `counters`, from 0, of the streams that start at `keys`.

    >>> _output(np.zeros(1, dtype=np.uint64), np.arange(2, dtype=np.uint64)).tolist()
    [16294208416658607535, 7960286522194355700]
    """
    return spread_bits(keys + (counters + np.uint64(1)) * _GOLDEN_GAMMA)


def _unit_interval(outputs: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Map outputs to [0, 1) by their 53 high bits, the precision of a double."""
    return (outputs >> np.uint64(11)).astype(np.float64) * 2.0**-53


def masked_batch(
    store: ExampleStore, indices: npt.ArrayLike, *, epoch: int, seed: int, policy: MaskingPolicy, first_id: int = 0
) -> dict[str, Array]:
    """Read, mask and pad the examples at `indices` as one vectorised batch.

    Equal to `mask_example` for each example, then padding, in about a twentieth of the time. Rows are padded to
    `store.max_length`, so the batch shape depends only on the number of examples. `first_id` is the id of the store's
    first example, where it is not of the first shard.

    Returns:
        Arrays for B examples, S = `store.max_length`, P = `max_targets`, all int64: `input_ids` [B, S];
        `token_type_ids` [B, S], 0 in padding, and everywhere if the tokenizer has one type; `attention_mask` [B, S], 1
        for real tokens; `masked_positions` [B, P], 0 where unused; `masked_labels` [B, P], -100 where unused;
        `next_sentence_labels` [B], 1 = random next.
    """
    examples = store.padded(indices)
    example_ids = np.asarray(indices, dtype=np.int64) + first_id
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
