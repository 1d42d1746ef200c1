"""Promise 1: a mask is a pure function of seed, epoch, example id and policy, whatever batch the example is in."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.examples.masking import MaskingPolicy, mask_example, mask_rows, max_targets
from bertline.examples.store import Example
from bertline.foundation.labels import IGNORED_LABEL

VOCAB_SIZE = 40
SPECIAL = (0, 1, 2, 3, 4)

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
def test_targets_are_ordinary_tokens_in_the_right_number(
    sequence: list[int], policy: MaskingPolicy, seed: int, epoch: int, example_id: int
) -> None:
    result = mask_example(example_of(sequence), seed=seed, epoch=epoch, example_id=example_id, policy=policy)
    num_maskable = sum(token not in SPECIAL for token in sequence)
    share = policy.mask_prob * num_maskable
    positions = result.masked_positions.tolist()
    fewest = min(1, num_maskable)
    assert max(fewest, math.floor(share)) <= len(positions) <= max(fewest, math.ceil(share))
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
def test_a_batch_in_any_order_and_padding_gives_each_example_its_own_mask(
    batch: list[list[int]], policy: MaskingPolicy, seed: int, epoch: int, data: st.DataObject
) -> None:
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


@settings(max_examples=50)
@given(sequences, policies, seeds, st.lists(epochs, min_size=2, max_size=5))
def test_static_masks_never_change(sequence: list[int], policy: MaskingPolicy, seed: int, many: list[int]) -> None:
    masks = {
        tuple(
            mask_example(example_of(sequence), seed=seed, epoch=epoch, example_id=1, policy=policy).input_ids.tolist()
        )
        for epoch in many
    }
    assert len(masks) == 1 or not policy.static
