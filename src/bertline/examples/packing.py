"""Packing: the sequences of a batch are concatenated into rows, which reduces computation on padding.

Shapes: B sequences of at most W tokens, R rows of W tokens, P targets, C spans (a span is a sequence, or the padding at
the end of a row).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bertline.examples.store import Array
from bertline.foundation.labels import IGNORED_LABEL

# The number of rows is a multiple of a sixteenth of the batch: few shapes, each of which is compiled separately, and
# little padding.
_SHARES_OF_BATCH = 16


@dataclass(frozen=True, slots=True)
class Placement:
    """Position of each sequence in the packed rows."""

    rows: Array
    """[B], row of each sequence."""
    offsets: Array
    """[B], offset of each sequence in its row, in tokens."""
    num_rows: int


def place_sequences(lengths: Array, width: int) -> Placement:
    """Assign sequences to rows by best-fit decreasing: longest first, each into the row with the least space that fits.

    The number of rows is at most 11/9 of the optimum plus one (Johnson et al., "Worst-Case Performance Bounds for
    Simple One-Dimensional Packing Algorithms", SIAM J. Comput. 3, 1974).

    Args:
        lengths: [B], each from 1 to `width`.
        width: Tokens per row.

    Example:
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
        pad_id: Id of `[PAD]`.
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
    size = rows_per_batch or _rounded(placement.num_rows, -(-len(lengths) // _SHARES_OF_BATCH))
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
    return {
        "input_ids": laid(batch["input_ids"], pad_id),
        "token_type_ids": laid(batch["token_type_ids"]),
        "position_ids": laid(columns),
        "sequence_ids": laid(np.arange(1, len(starts) + 1)[:, None]),
        "boundaries": _boundaries(starts, lengths, num_rows, width),
        "first_positions": _filled(starts, num_sequences, 0),
        "next_sentence_labels": _filled(batch["next_sentence_labels"], num_sequences, IGNORED_LABEL),
        "masked_positions": _filled((batch["masked_positions"] + starts[:, None])[is_target], num_targets, 0),
        "masked_labels": _filled(batch["masked_labels"][is_target], num_targets, IGNORED_LABEL),
        **({} if places is None else {"sequence_places": _filled(places, num_sequences, 0)}),
    }


def _boundaries(starts: Array, lengths: Array, num_rows: int, width: int) -> Array:
    edges = np.unique(np.concatenate([starts, starts + lengths, np.arange(num_rows + 1) * width]))
    return _filled(edges, _room(len(edges) - 1, 2 * num_rows) + 1, num_rows * width).astype(np.int32)


def _filled(values: Array, size: int, filler: int) -> Array:
    return np.concatenate([values, np.full(size - len(values), filler, dtype=np.int64)])


def _rounded(number: int, step: int) -> int:
    return -(-number // step) * step


def _room(number: int, usual: int) -> int:
    """Return the array size: `usual`, or the next power of two if that is too small, so that shapes rarely change."""
    return usual if number <= usual else 1 << (number - 1).bit_length()
