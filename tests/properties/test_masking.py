"""Promise 1: a mask is a pure function of seed, epoch, example id and policy, whatever batch the example is in."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.examples.masking import MaskingPolicy, mask_example, mask_rows, max_targets
from bertline.examples.store import Example
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.seeds import seed_for

VOCAB_SIZE = 40
SPECIAL = (0, 1, 2, 3, 4)


def packed(bits: list[bool]) -> bytes:
    return np.packbits(bits).tobytes()


policies = st.builds(
    MaskingPolicy,
    mask_prob=st.floats(0.01, 0.99),
    replace_with_mask_prob=st.floats(0, 0.6),
    replace_with_random_prob=st.floats(0, 0.4),
    static=st.booleans(),
    vocab_size=st.just(VOCAB_SIZE),
    pad_id=st.just(0),
    mask_id=st.just(4),
    special_ids=st.just(SPECIAL),
    unit=st.sampled_from(["token", "word", "span"]),
    word_starts=st.lists(st.booleans(), min_size=VOCAB_SIZE, max_size=VOCAB_SIZE).map(packed),
)
segments = st.lists(
    st.integers(1, VOCAB_SIZE - 1).filter(lambda token: token != 2 and token != 3), min_size=1, max_size=12
)
sequences = st.tuples(segments, segments).map(lambda pair: [2, *pair[0], 3, *pair[1], 3])
seeds = st.integers(0, 2**63)
epochs = st.integers(0, 10**6)


def example_of(sequence: list[int]) -> Example:
    return Example(np.array(sequence), np.zeros(len(sequence), dtype=np.int64), 0, len(sequence))


@settings(max_examples=200)
@given(sequences, policies, seeds, epochs, st.integers(0, 2**40))
def test_targets_are_ordinary_tokens_in_the_right_number(sequence, policy, seed, epoch, example_id) -> None:
    result = mask_example(example_of(sequence), seed=seed, epoch=epoch, example_id=example_id, policy=policy)
    num_maskable = sum(token not in SPECIAL for token in sequence)
    share = policy.mask_prob * num_maskable
    positions = result.masked_positions.tolist()
    fewest = min(1, num_maskable)
    least = math.floor(share) if policy.unit == "token" else fewest
    assert max(fewest, least) <= len(positions) <= max(fewest, math.ceil(share))
    assert len(positions) <= max_targets(len(sequence), policy.mask_prob)
    assert positions == sorted(set(positions))
    assert result.masked_labels.tolist() == [sequence[position] for position in positions]
    assert not set(result.masked_labels.tolist()) & set(SPECIAL)
    for position, (shown, true) in enumerate(zip(result.input_ids.tolist(), sequence, strict=True)):
        if position in positions:
            assert shown == policy.mask_id or shown not in SPECIAL
        else:
            assert shown == true


@settings(max_examples=100)
@given(st.lists(sequences, min_size=1, max_size=8), policies, seeds, epochs, st.data())
def test_a_batch_in_any_order_and_padding_gives_each_example_its_own_mask(batch, policy, seed, epoch, data) -> None:
    example_ids = data.draw(st.lists(st.integers(0, 10**9), min_size=len(batch), max_size=len(batch), unique=True))
    longest = max(map(len, batch)) + data.draw(st.integers(0, 5))
    rows = np.zeros((len(batch), longest), dtype=np.int64)
    for row, sequence in zip(rows, batch, strict=True):
        row[: len(sequence)] = sequence
    columns = max_targets(longest, policy.mask_prob)
    together = mask_rows(rows, np.array(example_ids), seed=seed, epoch=epoch, policy=policy, num_columns=columns)
    for row, (sequence, example_id) in enumerate(zip(batch, example_ids, strict=True)):
        alone = mask_example(example_of(sequence), seed=seed, epoch=epoch, example_id=example_id, policy=policy)
        used = together.masked_labels[row] != IGNORED_LABEL
        assert together.input_ids[row, : len(sequence)].tolist() == alone.input_ids.tolist()
        assert together.input_ids[row, len(sequence) :].tolist() == [0] * (longest - len(sequence))
        assert together.masked_positions[row, used].tolist() == alone.masked_positions.tolist()
        assert together.masked_labels[row, used].tolist() == alone.masked_labels.tolist()


def random_number(key: int, counter: int) -> int:
    """SplitMix64, with Python's integers."""
    state = (key + (counter + 1) * 0x9E3779B97F4A7C15) % 2**64
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
    return state ^ state >> 31


def of_a_plain_loop(
    sequence: list[int], policy: MaskingPolicy, key: int, starts: list[bool]
) -> tuple[list[int], list[int]]:
    """Positions of the targets, and what is shown everywhere, of the units `word` and `span`."""

    def uniform(counter: int) -> float:
        return (random_number(key, counter) >> 11) / 2**53

    words: list[list[int]] = []
    for position, token in enumerate(sequence):
        if token not in SPECIAL:
            is_first = starts[token] or sequence[position - 1] in SPECIAL
            words += [[position]] if is_first else []
            words[-1] += [] if is_first else [position]
    share = policy.mask_prob * sum(map(len, words))
    draw = 3 << 16
    budget = min(max(1, math.floor(share) + (uniform(draw) < share - math.floor(share))), sum(map(len, words)))
    order = sorted(range(len(words)), key=lambda word: (random_number(key, 3 * words[word][0]) >> 16, word))
    span_of: dict[int, int] = {}  # first position of the span of each target
    for word in order:
        drawn = uniform(draw + 1 + words[word][0]) * sum(0.8**number for number in range(10))
        num_words = next((number for number in range(1, 10) if drawn < sum(0.8**k for k in range(number))), 10)
        for later in range(word, min(len(words), word + (num_words if policy.unit == "span" else 1))):
            follows = later == word or words[later][0] == words[later - 1][-1] + 1
            if not follows or words[later][0] in span_of or len(words[later]) > budget - len(span_of):
                break
            span_of |= dict.fromkeys(words[later], words[word][0])
    if not span_of and words:
        span_of = dict.fromkeys(words[order[0]][:budget], words[order[0]][0])
    shown = list(sequence)
    ordinary = [token for token in range(VOCAB_SIZE) if token not in SPECIAL]
    for position, first in span_of.items():
        action = uniform(3 * (first if policy.unit == "span" else position) + 1)
        if action < policy.replace_with_mask_prob:
            shown[position] = policy.mask_id
        elif action < policy.replace_with_mask_prob + policy.replace_with_random_prob:
            shown[position] = ordinary[(random_number(key, 3 * position + 2) >> 32) * len(ordinary) >> 32]
    return sorted(span_of), shown


@settings(max_examples=300)
@given(sequences, policies, seeds, epochs, st.integers(0, 2**40))
def test_words_and_spans_are_those_of_a_plain_loop(sequence, policy, seed, epoch, example_id) -> None:
    unit = "word" if policy.unit == "token" else policy.unit
    policy = dataclasses.replace(policy, unit=unit)
    key = random_number(seed_for(seed, "mask", 0 if policy.static else epoch), example_id)
    starts = np.unpackbits(np.frombuffer(policy.word_starts, dtype=np.uint8)).astype(bool).tolist()
    positions, shown = of_a_plain_loop(sequence, policy, key, starts)
    result = mask_example(example_of(sequence), seed=seed, epoch=epoch, example_id=example_id, policy=policy)
    assert result.masked_positions.tolist() == positions
    assert result.input_ids.tolist() == shown
