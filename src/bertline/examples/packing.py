"""Arrangement of a batch: sequences concatenated into rows, and the segments of pairs as sequences of their own."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from bertline.examples.store import Array
from bertline.foundation.labels import IGNORED_LABEL
from bertline.tokenization.tokenizer import Layout

# The number of rows is a multiple of a sixteenth of the batch: few shapes, each of which is compiled separately, and
# little padding.
_SHARES_OF_BATCH = 16


class Placement(NamedTuple):
    """Position of each sequence in the packed rows."""

    rows: Array
    """[B], row of each sequence."""
    offsets: Array
    """[B], offset of each sequence in its row, in tokens."""
    num_rows: int


def place_sequences(lengths: Array, width: int) -> Placement:
    """Assign sequences [B] to rows by best-fit decreasing: longest first, each where the least space that fits is left.

    The number of rows is at most 11/9 of the optimum plus one (Johnson et al., "Worst-Case Performance Bounds for
    Simple One-Dimensional Packing Algorithms", SIAM J. Comput. 3, 1974). Each length is from 1 to `width`.

    >>> placement = place_sequences(np.array([3, 5, 2, 4]), 8)
    >>> placement.rows.tolist(), placement.offsets.tolist(), placement.num_rows
    ([0, 0, 1, 1], [5, 0, 4, 0], 2)
    """
    rows, offsets = np.empty_like(lengths), np.empty_like(lengths)
    num_rows, shortest = 0, int(lengths.min())
    spaces: list[tuple[int, int]] = []  # (tokens left, row), ascending
    for index in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[index])
        place = bisect_left(spaces, (length, 0))
        if place < len(spaces):
            space, row = spaces.pop(place)
        else:
            space, row = width, num_rows
            num_rows += 1
        rows[index], offsets[index] = row, width - space
        if space - length >= shortest:
            insort(spaces, (space - length, row))
    return Placement(rows, offsets, num_rows)


def packed_batches(
    batch: Mapping[str, Array], *, pad_id: int, max_targets: int, rows_per_batch: int | None
) -> Iterator[dict[str, Array]]:
    """Pack the sequences of a padded batch into micro-batches.

    Args:
        batch: The arrays of `masked_batch`, [B, W], and perhaps `sequence_places` [B].
        max_targets: Maximum number of targets of a sequence of W tokens.
        rows_per_batch: R; the last micro-batch is filled up with empty rows. None puts all rows into one micro-batch.

    Yields:
        Arrays, int64 except `boundaries`. `input_ids`, `token_type_ids`, `position_ids` and `sequence_ids` [R, W];
        sequence ids count from 1 in each micro-batch and are 0 in padding. `boundaries` [C + 1] int32, the start of
        each span in the flattened rows; the last entries repeat the end. `first_positions` [N] (start of each sequence
        in the flattened rows), `next_sentence_labels` [N] and `sequence_places` [N], if given; `masked_positions` [P]
        (indices into the flattened rows) and `masked_labels` [P]. Unused entries have position or place 0 and label
        -100.
    """
    lengths = batch["attention_mask"].sum(axis=1)
    width = batch["input_ids"].shape[1]
    placement = place_sequences(lengths, width)
    step = -(-len(lengths) // _SHARES_OF_BATCH)
    size = rows_per_batch or -(-placement.num_rows // step) * step
    for first_row in range(0, placement.num_rows, size):
        chosen = np.flatnonzero((placement.rows >= first_row) & (placement.rows < first_row + size))
        starts = (placement.rows[chosen] - first_row) * width + placement.offsets[chosen]
        part = {name: values[chosen] for name, values in batch.items()}
        yield _laid_out(part, starts, lengths[chosen], num_rows=size, pad_id=pad_id, max_targets=max_targets)


def _laid_out(
    batch: Mapping[str, Array], starts: Array, lengths: Array, *, num_rows: int, pad_id: int, max_targets: int
) -> dict[str, Array]:
    width = batch["input_ids"].shape[1]
    columns = np.arange(width)
    is_real = columns < lengths[:, None]
    targets = (starts[:, None] + columns)[is_real]

    def laid(values: Array, padding: int = 0) -> Array:
        row = np.full(num_rows * width, padding, dtype=np.int64)
        row[targets] = np.broadcast_to(values, is_real.shape)[is_real]
        return row.reshape(num_rows, width)

    is_target = batch["masked_labels"] != IGNORED_LABEL
    num_targets = _room(int(is_target.sum()), num_rows * max_targets)
    num_sequences = _room(len(starts), 2 * num_rows)
    places = batch.get("sequence_places")
    edges = np.unique(np.concatenate([starts, starts + lengths, np.arange(num_rows + 1) * width]))
    num_edges = _room(len(edges) - 1, 2 * num_rows) + 1
    return {
        "input_ids": laid(batch["input_ids"], pad_id),
        "token_type_ids": laid(batch["token_type_ids"]),
        "position_ids": laid(columns),
        "sequence_ids": laid(np.arange(1, len(starts) + 1)[:, None]),
        "boundaries": _filled(edges, num_edges, num_rows * width).astype(np.int32),
        "first_positions": _filled(starts, num_sequences, 0),
        "next_sentence_labels": _filled(batch["next_sentence_labels"], num_sequences, IGNORED_LABEL),
        "masked_positions": _filled((batch["masked_positions"] + starts[:, None])[is_target], num_targets, 0),
        "masked_labels": _filled(batch["masked_labels"][is_target], num_targets, IGNORED_LABEL),
        **({} if places is None else {"sequence_places": _filled(places, num_sequences, 0)}),
    }


def _filled(values: Array, size: int, filler: int) -> Array:
    return np.concatenate([values, np.full(size - len(values), filler, dtype=np.int64)])


def _room(number: int, usual: int) -> int:
    """Return the array size: `usual`, or the next power of two if that is too small, so that shapes rarely change."""
    return usual if number <= usual else 1 << (number - 1).bit_length()


def segments_apart(
    batch: Mapping[str, Array], first_segment_lengths: Array, layout: Layout, *, pad_id: int
) -> dict[str, Array]:
    """Return the segments of masked pairs as sequences, `[CLS] A [SEP]` of example i in row 2i, that of B in 2i + 1.

    An encoder of single texts never sees two segments in one sequence.

    Args:
        batch: Arrays of `masked_batch`, B examples of two segments.
        first_segment_lengths: [B] number of tokens of `[CLS] A [SEP]`.
        layout: Special tokens of a pair; those before and after it are those of a segment alone.

    Returns:
        The same arrays for 2B sequences, each with the targets that lie in it; `token_type_ids` and
        `next_sentence_labels` are 0. Unused entries among the targets are where the other segment has its own.
    """
    first = first_segment_lengths[:, None]
    end_of_a = first - len(layout.between)
    columns = np.arange(batch["input_ids"].shape[1])[None]
    ids_of_a = np.where(columns < end_of_a, batch["input_ids"], pad_id)
    for place, token in enumerate(layout.after):
        np.put_along_axis(ids_of_a, end_of_a + place, token, axis=1)
    length_of_a = end_of_a + len(layout.after)
    moved = first - len(layout.before)
    length_of_b = batch["attention_mask"].sum(axis=1)[:, None] - moved
    sources = np.clip(moved + columns, 0, columns.shape[1] - 1)
    of_b = np.where(columns < length_of_b, np.take_along_axis(batch["input_ids"], sources, axis=1), pad_id)
    of_b[:, : len(layout.before)] = layout.before
    positions, labels = batch["masked_positions"], batch["masked_labels"]
    in_b = positions >= first
    labels_of_a, labels_of_b = np.where(in_b, IGNORED_LABEL, labels), np.where(in_b, labels, IGNORED_LABEL)
    input_ids = _in_turns(ids_of_a, of_b)
    return {
        "input_ids": input_ids,
        "token_type_ids": np.zeros_like(input_ids),
        "attention_mask": _in_turns(columns < length_of_a, columns < length_of_b).astype(np.int64),
        "masked_positions": _in_turns(
            np.where(labels_of_a == IGNORED_LABEL, 0, positions),
            np.where(labels_of_b == IGNORED_LABEL, 0, positions - moved),
        ),
        "masked_labels": _in_turns(labels_of_a, labels_of_b),
        "next_sentence_labels": np.zeros(len(input_ids), dtype=np.int64),
    }


def _in_turns(of_a: Array, of_b: Array) -> Array:
    """Return the rows of both in turns, [2B, ...]."""
    return np.stack([of_a, of_b], axis=1).reshape(2 * len(of_a), *of_a.shape[1:])
