"""Encoding of texts as token ids, and batches of sequences of similar length, shared by all kinds of tasks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertline.foundation.seeds import generator

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertline.tokenization.tokenizer import Tokenizer
    from bertline.training.devices import Machine

# Number of batches within which sequences are sorted by length: enough for little padding, few enough to stay random.
_BATCHES_SORTED_TOGETHER = 16
SCORING_BATCH_SIZE = 64
INDICES = "indices"
"""Key of a batch: the numbers of its rows or sequences in the encoded data, which soft targets are found by."""
INPUT_NAMES = ("input_ids", "token_type_ids", "attention_mask")
"""Inputs of a model, in the order of its arguments."""


def tensors(**arrays: NDArray[Any]) -> dict[str, Tensor]:
    """Return arrays as the tensors of a batch, which share their memory."""
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@dataclass(frozen=True, slots=True)
class Sequences:
    """N model input sequences, padded to the S tokens of the longest."""

    input_ids: NDArray[np.int32]
    """Token ids [N, S], padded at the end."""
    token_type_ids: NDArray[np.uint8]
    """Segment ids [N, S], 1 in the second segment."""
    lengths: NDArray[np.int64]
    """Number of tokens of each sequence [N], including [CLS] and [SEP]."""
    cut: NDArray[np.bool_]
    """Whether tokens of the original text were truncated to fit the sequence, [N]."""

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, indices: NDArray[np.integer]) -> dict[str, Tensor]:
        """Return the sequences at `indices` as one batch, padded to the longest among them.

        Returns:
            input_ids, token_type_ids and attention_mask [B, S].
        """
        longest = int(self.lengths[indices].max())
        return tensors(
            input_ids=self.input_ids[indices, :longest].astype(np.int64),
            token_type_ids=self.token_type_ids[indices, :longest].astype(np.int64),
            attention_mask=(np.arange(longest) < self.lengths[indices, None]).astype(np.int64),
        )


def padded(rows: Sequence[Any], value: int, *, least: int = 0, dtype: type[Any] = np.int64) -> NDArray[Any]:
    """Return rows of numbers of different lengths as an array [N, S], S at least `least`, padded at the end."""
    array = np.full((len(rows), max([least, *map(len, rows)])), value, dtype=dtype)
    for number, row in enumerate(rows):
        array[number, : len(row)] = row
    return array


def padded_sequences(
    sequences: Sequence[Any], first_lengths: Sequence[int], *, pad_id: int, cut: Sequence[bool] | None = None
) -> Sequences:
    """Pad complete sequences, special tokens included, to one array.

    Args:
        first_lengths: Number of first-segment tokens of each sequence, including its [CLS] and [SEP].
        cut: See `Sequences.cut`; None means that no sequence was truncated.
    """
    input_ids = padded(sequences, pad_id, dtype=np.int32)
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    places = np.arange(input_ids.shape[1])
    in_second = (places >= np.array(first_lengths, dtype=np.int64)[:, None]) & (places < lengths[:, None])
    was_cut = np.array([False] * len(sequences) if cut is None else cut, dtype=np.bool_)
    return Sequences(input_ids, in_second.view(np.uint8), lengths, was_cut)


def encode_texts(
    texts: Sequence[str], text_pairs: Sequence[str] | None, tokenizer: Tokenizer, *, max_length: int
) -> Sequences:
    """Encode texts as `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` (or the tokenizer's own layout), truncated to
    `max_length` tokens.

    A pair loses tokens from the end of its longer segment, one at a time (BERT reference code, `run_classifier.py`).
    """
    layout = tokenizer.single if text_pairs is None else tokenizer.pair
    room = layout.room(max_length)

    def parts() -> Iterator[SegmentPair]:
        firsts = tokenizer.encoded_literally(list(texts))
        seconds = itertools.repeat(None) if text_pairs is None else tokenizer.encoded_literally(list(text_pairs))
        for first, second in zip(firsts, seconds, strict=text_pairs is not None):
            if second is None:
                yield first[:room], None, len(first) > room
            else:
                most, rest = kept_of_pair(len(first), len(second), room)
                yield first[:most], second[:rest], most + rest < len(first) + len(second)

    return assembled(parts(), tokenizer)


def kept_of_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of each segment remain when the longer one is truncated first (the second on a tie).

    >>> kept_of_pair(9, 2, 8), kept_of_pair(2, 9, 8), kept_of_pair(9, 9, 7)
    ((6, 2), (2, 6), (4, 3))
    """
    of_second = min(second, max(room // 2, room - first))
    return min(first, room - of_second), of_second


SegmentPair = tuple[list[int], list[int] | None, bool]
"""Tokens of the first and of the second segment of a sequence, and whether tokens of the texts are missing."""


def assembled(parts: Iterable[SegmentPair], tokenizer: Tokenizer) -> Sequences:
    """Assemble sequences in the tokenizer's layout of one text or of two."""
    sequences, first_lengths, was_cut = [], [], []
    for first, second, is_cut in parts:
        layout = tokenizer.single if second is None else tokenizer.pair
        # A list of all tokens takes many times the memory of an array.
        sequences.append(np.array(layout.sequence(first, second or ()), dtype=np.int32))
        first_lengths.append(layout.first_length(len(first), len(second or ())))
        was_cut.append(is_cut)
    return padded_sequences(sequences, first_lengths, pad_id=tokenizer.pad_id, cut=was_cut)


def any_of(flags: NDArray[np.bool_], offsets: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return whether any flag of each group is set; group n is flags[offsets[n] : offsets[n + 1]]."""
    return np.diff(np.append(0, np.cumsum(flags))[offsets]) > 0


def encode_windows(
    texts: Sequence[str], tokenizer: Tokenizer, *, max_length: int, overlap: int
) -> tuple[Sequences, NDArray[np.int64]]:
    """Encode as `encode_texts` does, but split long texts into overlapping sequences instead of truncating them.

    Args:
        overlap: Number of tokens that neighbouring windows share; less than the size of a window.

    Returns:
        The sequences, and the index of the first one of each row.
    """
    row_starts: list[int] = []
    room = tokenizer.single.room(max_length, overlap=overlap)

    def parts() -> Iterator[SegmentPair]:
        num_windows = 0
        for tokens in tokenizer.encoded_literally(list(texts)):
            row_starts.append(num_windows)
            starts = window_starts(len(tokens), room, overlap)
            num_windows += len(starts)
            yield from ((tokens[start : start + room], None, False) for start in starts)

    return assembled(parts(), tokenizer), np.array(row_starts, dtype=np.int64)


def window_starts(num_tokens: int, room: int, overlap: int) -> range:
    """Return where the windows of a segment begin: of `room` tokens at most, neighbours sharing `overlap`.

    >>> [*window_starts(6, 4, 2)], [*window_starts(5, 4, 1)], [*window_starts(0, 4, 1)]
    ([0, 2], [0, 3], [0])
    """
    return range(0, max(num_tokens - overlap, 1), room - overlap)


class Epochs:
    """Batches that each epoch makes from scratch.

    Args:
        num_items: Number of items of an epoch.
        batch_size: Number of items in a batch; the last one may have fewer.
        batches: Yields the batches of an epoch, a function of its number, from 0.
    """

    def __init__(self, num_items: int, batch_size: int, batches: Callable[[int], Iterator[dict[str, Tensor]]]) -> None:
        self._num_batches = math.ceil(num_items / batch_size)
        self.of_epoch = batches
        self.num_taken = 0  # of all epochs; a resumed run sets it

    def __len__(self) -> int:
        return self._num_batches

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        epoch, taken = divmod(self.num_taken, len(self))
        self.num_taken = (epoch + 1) * len(self)
        yield from itertools.islice(self.of_epoch(epoch), taken, None)


def length_sorted_batches(
    lengths: NDArray[np.integer],
    make: Callable[[NDArray[np.integer]], dict[str, Tensor]],
    *,
    batch_size: int,
    seed: int,
    only: NDArray[np.integer] | None = None,
) -> Epochs:
    """Return batches of training sequences of similar length, in an order that depends on the seed and the epoch.

    Args:
        lengths: Number of tokens of each sequence.
        make: Returns the batch of the sequences with some indices.
        batch_size: Number of sequences in a batch; one batch of an epoch may have fewer.
        only: Indices of the sequences to take; None takes all.
    """
    taken = np.arange(len(lengths)) if only is None else only
    window = batch_size * _BATCHES_SORTED_TOGETHER

    def batches(epoch: int) -> Iterator[dict[str, Tensor]]:
        random = generator(seed, "order", epoch)
        order = taken[random.permutation(len(taken))]
        windows = [order[start : start + window] for start in range(0, len(order), window)]
        by_length = [each[np.argsort(lengths[each], kind="stable")] for each in windows]
        of_epoch = [each[start : start + batch_size] for each in by_length for start in range(0, len(each), batch_size)]
        for place in random.permutation(len(of_epoch)):
            yield {**tensors(**{INDICES: of_epoch[place]}), **make(of_epoch[place])}

    return Epochs(len(taken), batch_size, batches)


def scoring_batches(
    sequences: Sequences, *, batch_size: int = SCORING_BATCH_SIZE, max_tokens: int | None = None
) -> Iterator[tuple[NDArray[np.integer], dict[str, Tensor]]]:
    """Yield batches of all sequences, longest first, each with the indices of its sequences.

    Args:
        max_tokens: Maximum number of tokens in a batch, padding included; replaces `batch_size`. A longer sequence is a
            batch by itself.

    >>> sequences = padded_sequences([[1] * length for length in (2, 9, 3, 4)], [9] * 4, pad_id=0)
    >>> [indices.tolist() for indices, _ in scoring_batches(sequences, max_tokens=8)]
    [[1], [3, 2], [0]]
    """
    order = np.argsort(-sequences.lengths, kind="stable")
    start = 0
    while start < len(order):
        # The first sequence of a batch is the longest, so the others are padded to it.
        longest = max(int(sequences.lengths[order[start]]), 1)
        size = batch_size if max_tokens is None else max(max_tokens // longest, 1)
        indices = order[start : start + size]
        yield indices, sequences.batch(indices)
        start += size


def outputs_of(
    model: nn.Module,
    sequences: Sequences,
    machine: Machine,
    *shape: int,
    read: Callable[[Tensor], Tensor] = lambda output: output,
) -> NDArray[np.float32]:
    """Compute the outputs of a model in evaluation mode.

    Args:
        model: A model that returns one tensor from the inputs of `INPUT_NAMES`, or several, which become the last axis.
        shape: Shape of the output of a sequence; smaller ones are padded with 0.
        read: Applied to the output of a batch in fp32, on the device; for example a softmax.

    Returns:
        What `read` makes of the outputs, [N, *shape].
    """
    import torch

    from bertline.training.devices import evaluating

    found = np.zeros((len(sequences), *shape), dtype=np.float32)
    with evaluating(model, machine) as forward:
        for indices, batch in scoring_batches(sequences, max_tokens=machine.scoring_tokens):
            output = forward(*(batch[name].to(machine.device) for name in INPUT_NAMES))
            output = torch.stack(output, dim=-1) if isinstance(output, tuple) else output
            of_batch = read(output.float()).cpu().numpy()
            where: tuple[Any, ...] = (indices, *map(slice, of_batch.shape[1:]))
            found[where] = of_batch
    return found


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors of length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
