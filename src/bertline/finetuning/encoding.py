"""Labelled rows as token ids, and batches of rows of like length."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertline.foundation.seeds import generator
from bertline.tasks.storage import Rows
from bertline.tokenization.tokenizer import Tokenizer

# Rows are sorted by length among this many batches: enough to leave little padding, few enough to stay random.
_BATCHES_SORTED_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Rows as the model takes them; N rows, S the longest of them."""

    input_ids: NDArray[np.int64]
    """[N, S], padded at the end."""
    token_type_ids: NDArray[np.int64]
    """[N, S], 1 in the second segment."""
    lengths: NDArray[np.int64]
    """[N] tokens, [CLS] and [SEP] included."""
    labels: NDArray[np.int64]
    """[N]."""

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, num_rows: int | None) -> EncodedRows:
        """The first rows (None: all)."""
        chosen = slice(num_rows)
        return EncodedRows(
            self.input_ids[chosen], self.token_type_ids[chosen], self.lengths[chosen], self.labels[chosen]
        )

    def batch(self, indices: NDArray[np.integer]) -> dict[str, Tensor]:
        """These rows, padded to the longest among them.

        Returns:
            input_ids, token_type_ids and attention_mask [B, S]; labels [B].
        """
        longest = int(self.lengths[indices].max())
        return {
            "input_ids": torch.from_numpy(self.input_ids[indices, :longest]),
            "token_type_ids": torch.from_numpy(self.token_type_ids[indices, :longest]),
            "attention_mask": torch.from_numpy((np.arange(longest) < self.lengths[indices, None]).astype(np.int64)),
            "labels": torch.from_numpy(self.labels[indices]),
        }


def encode_rows(rows: Rows, tokenizer: Tokenizer, *, max_length: int) -> EncodedRows:
    """Encode `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, each cut to `max_length` tokens.

    A pair gives up tokens from the end of its longer segment, one at a time (BERT reference code, `run_classifier.py`).
    """
    first = tokenizer.encode_literally(rows.texts)
    second = tokenizer.encode_literally(rows.text_pairs) if rows.text_pairs is not None else None
    sequences: list[list[int]] = []
    first_lengths: list[int] = []
    for index, segment in enumerate(first):
        if second is None:
            kept = segment[: max_length - 2]
            tail: list[int] = []
        else:
            keep_first, keep_second = _kept_of_pair(len(segment), len(second[index]), max_length - 3)
            kept, tail = segment[:keep_first], [*second[index][:keep_second], tokenizer.sep_id]
        sequences.append([tokenizer.cls_id, *kept, tokenizer.sep_id, *tail])
        first_lengths.append(len(kept) + 2)
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    input_ids = np.full((len(sequences), int(lengths.max(initial=0))), tokenizer.pad_id, dtype=np.int64)
    for row, sequence in enumerate(sequences):
        input_ids[row, : len(sequence)] = sequence
    places = np.arange(input_ids.shape[1])
    in_second = (places >= np.array(first_lengths)[:, None]) & (places < lengths[:, None])
    return EncodedRows(input_ids, in_second.astype(np.int64), lengths, rows.labels)


def _kept_of_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of two segments stay when the longer one gives way (the second where both are as long).

    >>> _kept_of_pair(10, 3, 8), _kept_of_pair(9, 9, 10), _kept_of_pair(2, 3, 10)
    ((5, 3), (5, 5), (2, 3))
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if second <= half:
        return room - second, second
    if first <= room - half:
        return first, room - first
    return room - half, half


class LengthSortedBatches:
    """Batches of training rows, in another random order in each pass; rows of a batch are of like length.

    Args:
        rows: The training rows.
        batch_size: Rows of a batch; the last one of a pass may have fewer.
        seed: The order is a function of the seed and the number of the pass.
    """

    def __init__(self, rows: EncodedRows, *, batch_size: int, seed: int) -> None:
        self._rows = rows
        self._batch_size = batch_size
        self._seed = seed
        self._passes = 0

    def __len__(self) -> int:
        return math.ceil(len(self._rows) / self._batch_size)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        random = generator(self._seed, "order", self._passes)
        self._passes += 1
        order = random.permutation(len(self._rows))
        window = self._batch_size * _BATCHES_SORTED_TOGETHER
        batches = [
            by_length[start : start + self._batch_size]
            for by_length in (self._sorted(order[begin : begin + window]) for begin in range(0, len(order), window))
            for start in range(0, len(by_length), self._batch_size)
        ]
        for place in random.permutation(len(batches)):
            yield self._rows.batch(batches[place])

    def _sorted(self, indices: NDArray[np.integer]) -> NDArray[np.integer]:
        return indices[np.argsort(self._rows.lengths[indices], kind="stable")]


def scoring_batches(rows: EncodedRows, *, batch_size: int) -> Iterator[tuple[NDArray[np.integer], dict[str, Tensor]]]:
    """All rows, the longest first, each batch with the indices of its rows."""
    order = np.argsort(-rows.lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        yield indices, rows.batch(indices)
