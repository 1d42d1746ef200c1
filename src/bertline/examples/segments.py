"""Segments as sequences of their own: the two segments of each example, `[CLS] A [SEP]` and `[CLS] B [SEP]`.

An encoder of single texts never sees two segments in one sequence; here each has the whole attention to itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bertline.examples.store import Array
from bertline.foundation.labels import IGNORED_LABEL
from bertline.tokenization.tokenizer import Layout


def segments_apart(
    batch: Mapping[str, Array], first_segment_lengths: Array, layout: Layout, *, pad_id: int
) -> dict[str, Array]:
    """Return the segments of masked pairs as sequences, A of example i in row 2i and B in row 2i + 1.

    Each has its own `[CLS]`, and the targets that lie in it. Either segment alone is shorter than the pair, so every
    sequence fits.

    Args:
        batch: Arrays of `masked_batch`, B examples of two segments.
        first_segment_lengths: [B] number of tokens of `[CLS] A [SEP]`.
        layout: Special tokens of a pair; those before and after it are those of a segment alone.
        pad_id: Id of `[PAD]`.

    Returns:
        The same arrays for 2B sequences; `token_type_ids` and `next_sentence_labels` are 0. Unused entries among the
        targets are where the other segment has its own.

    Example:
        >>> pair = {"input_ids": [[2, 7, 3, 8, 9, 3, 0]], "attention_mask": [[1, 1, 1, 1, 1, 1, 0]],
        ...         "masked_positions": [[1, 4]], "masked_labels": [[7, 9]]}
        >>> batch = {name: np.array(rows) for name, rows in pair.items()}
        >>> apart = segments_apart(batch, np.array([3]), Layout((2,), (3,), (3,), 1), pad_id=0)
        >>> apart["input_ids"].tolist()
        [[2, 7, 3, 0, 0, 0, 0], [2, 8, 9, 3, 0, 0, 0]]
        >>> apart["masked_positions"].tolist(), apart["masked_labels"].tolist()
        ([[1, 0], [0, 2]], [[7, -100], [-100, 9]])
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
