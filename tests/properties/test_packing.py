"""Packed rows: every sequence once, whole, in one row, and nothing lost on the way."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.examples.packing import packed_batches, place_sequences

WIDTH, PAD_ID, UNUSED = 24, 0, -100


@st.composite
def batches(draw):
    """What `masked_batch` gives: some sequences have no target, and some fill the row."""
    lengths = np.array(draw(st.lists(st.integers(3, WIDTH), min_size=1, max_size=40)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    size, columns = len(lengths), np.arange(WIDTH)
    is_real = columns < lengths[:, None]
    num_targets = np.minimum(random.integers(0, 4, size), lengths - 2)
    positions = np.zeros((size, 4), dtype=np.int64)
    labels = np.full((size, 4), UNUSED)
    for row, number in enumerate(num_targets):
        positions[row, :number] = np.sort(random.choice(lengths[row] - 2, number, replace=False)) + 1
        labels[row, :number] = random.integers(5, 90, number)
    return {
        "input_ids": np.where(is_real, random.integers(5, 90, (size, WIDTH)), PAD_ID),
        "token_type_ids": np.where(is_real, random.integers(0, 2, (size, WIDTH)), 0),
        "attention_mask": is_real.astype(np.int64),
        "masked_positions": positions,
        "masked_labels": labels,
        "next_sentence_labels": random.integers(0, 2, size),
    }


def sequences_of_padded(batch):
    for row, length in enumerate(batch["attention_mask"].sum(axis=1)):
        used = batch["masked_labels"][row] != UNUSED
        targets = zip(batch["masked_positions"][row][used], batch["masked_labels"][row][used], strict=True)
        ids, types = batch["input_ids"][row, :length], batch["token_type_ids"][row, :length]
        yield tuple(ids), tuple(types), tuple(targets), int(batch["next_sentence_labels"][row])


def sequences_of_packed(packed):
    flat = {name: packed[name].reshape(-1) for name in ("input_ids", "token_type_ids", "position_ids", "sequence_ids")}
    is_target, is_sequence = packed["masked_labels"] != UNUSED, packed["next_sentence_labels"] != UNUSED
    positions, labels = packed["masked_positions"][is_target], packed["masked_labels"][is_target]
    firsts = packed["first_positions"][is_sequence]
    for first, next_sentence_label in zip(firsts, packed["next_sentence_labels"][is_sequence], strict=True):
        places = np.flatnonzero(flat["sequence_ids"] == flat["sequence_ids"][first])
        assert places[0] == first
        assert len({place // WIDTH for place in places}) == 1
        assert flat["position_ids"][places].tolist() == list(range(len(places)))
        assert int(first) in packed["boundaries"] and int(places[-1]) + 1 in packed["boundaries"]
        own = np.isin(positions, places)
        targets = sorted(zip(positions[own] - first, labels[own], strict=True))
        yield (
            tuple(flat["input_ids"][places]),
            tuple(flat["token_type_ids"][places]),
            tuple(targets),
            int(next_sentence_label),
        )


@settings(max_examples=60)
@given(batch=batches(), rows=st.sampled_from([None, 1, 2, 5]))
def test_every_sequence_stands_once_and_whole_in_one_row(batch, rows):
    micro_batches = list(packed_batches(batch, pad_id=PAD_ID, max_targets=3, rows_per_batch=rows))
    found = [sequence for packed in micro_batches for sequence in sequences_of_packed(packed)]
    assert sorted(found) == sorted(sequences_of_padded(batch))


@settings(max_examples=60)
@given(batch=batches(), rows=st.sampled_from([None, 1, 2, 5]))
def test_boundaries_part_rows_into_spans_that_fit_a_row(batch, rows):
    for packed in packed_batches(batch, pad_id=PAD_ID, max_targets=3, rows_per_batch=rows):
        boundaries = packed["boundaries"]
        assert boundaries.dtype == np.int32
        assert boundaries[0] == 0 and boundaries[-1] == packed["input_ids"].size
        spans = np.diff(boundaries)
        assert spans.min() >= 0 and spans.max() <= WIDTH
        flat = packed["sequence_ids"].reshape(-1)
        assert all(len(set(flat[start:end])) == 1 for start, end in itertools.pairwise(boundaries) if end > start)


@given(lengths=st.lists(st.integers(1, WIDTH), min_size=1, max_size=60))
def test_no_row_overflows_and_few_are_taken(lengths):
    lengths = np.array(lengths)
    placement = place_sequences(lengths, WIDTH)
    filled = np.bincount(placement.rows, weights=lengths, minlength=placement.num_rows)
    assert filled.min() > 0 and filled.max() <= WIDTH
    # No two rows could be one, but for the last: best fit leaves at most one row half empty.
    assert (filled <= WIDTH / 2).sum() <= 1
