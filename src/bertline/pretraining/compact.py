"""Micro-batches as they travel from the loader processes to the device: in few bytes, and whole again there.

Loader processes hand over tensors in shared memory, of which a container often has 64 MB for all of them, and each byte
is copied to the device. What follows from the lengths of the sequences is therefore computed on the device: masks,
segments, positions. That leaves about 6 bytes per token of the 24 to 42 that the model reads.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from bertline.examples.store import Array
from bertline.modeling.dropout import token_numbers

_COMPUTED = ("token_type_ids", "attention_mask", "sequence_ids", "position_ids")


def compacted(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return a micro-batch of `examples.masking`, or packed rows of `examples.packing`, without what can be computed.

    Returns:
        int32 tensors: the arrays but `token_type_ids`, `attention_mask`, `sequence_ids` and `position_ids`; and for N
        sequences, `first_segment_lengths` [N] and, unless the rows are all full (then the arrays have no mask),
        `lengths` [N]. Unused entries have length 0.

    Example:
        >>> arrays = {"input_ids": np.array([[2, 8, 3, 9, 3, 0]]), "token_type_ids": np.array([[0, 0, 0, 1, 1, 0]]),
        ...           "attention_mask": np.array([[1, 1, 1, 1, 1, 0]])}
        >>> {name: values.tolist() for name, values in compacted(arrays).items()}
        {'input_ids': [[2, 8, 3, 9, 3, 0]], 'first_segment_lengths': [3], 'lengths': [5]}
    """
    sent = {name: values for name, values in arrays.items() if name not in _COMPUTED}
    if "sequence_ids" in arrays:
        size, numbers = len(arrays["first_positions"]) + 1, arrays["sequence_ids"].ravel()
        lengths = np.bincount(numbers, minlength=size)[1:]
        second = np.bincount(numbers, weights=arrays["token_type_ids"].ravel(), minlength=size)[1:].astype(np.int64)
    else:
        num_rows, width = arrays["input_ids"].shape
        second = arrays["token_type_ids"].sum(axis=1)
        lengths = arrays["attention_mask"].sum(axis=1) if "attention_mask" in arrays else np.full(num_rows, width)
    sent["first_segment_lengths"] = lengths - second
    if "sequence_ids" in arrays or "attention_mask" in arrays:
        sent["lengths"] = lengths
    return {name: torch.from_numpy(values.astype(np.int32)) for name, values in sent.items()}


def expanded(sent: Mapping[str, Tensor], dropout_keys: Tensor | None = None) -> dict[str, Tensor]:
    """Return the micro-batch that was compacted, on the same device and in the dtypes that the model takes.

    Nothing waits for the device. With keys of this step, also what `TokenMasks.of` reads.
    """
    whole = {name: values if name == "boundaries" else values.long() for name, values in sent.items()}
    first_segment_lengths, lengths = whole.pop("first_segment_lengths"), whole.pop("lengths", None)
    sequence_places = whole.pop("sequence_places", None)
    if "first_positions" in whole:
        assert lengths is not None  # of the sequences in packed rows
        whole |= _packed(whole["input_ids"], whole["first_positions"], lengths, first_segment_lengths)
    else:
        whole |= _padded(whole["input_ids"], lengths, first_segment_lengths)
    if dropout_keys is not None and sequence_places is not None:
        width = whole["input_ids"].shape[1]
        if "sequence_ids" in whole:
            sequences, positions = sequence_places[(whole["sequence_ids"] - 1).clamp(min=0)], whole["position_ids"]
        else:
            sequences, positions = sequence_places[:, None], torch.arange(width)
        whole["dropout_keys"] = dropout_keys
        whole["dropout_tokens"] = token_numbers(dropout_keys, sequences, positions, width)
    return whole


def _padded(input_ids: Tensor, lengths: Tensor | None, first_segment_lengths: Tensor) -> dict[str, Tensor]:
    """Return the mask, unless all rows are full, and token types [B, S] of sequences with these lengths [B]."""
    places = torch.arange(input_ids.shape[1], device=input_ids.device)
    is_second = places >= first_segment_lengths[:, None]
    if lengths is None:
        return {"token_type_ids": is_second.long()}
    is_real = places < lengths[:, None]
    return {"token_type_ids": (is_second & is_real).long(), "attention_mask": is_real.long()}


def _packed(input_ids: Tensor, starts: Tensor, lengths: Tensor, first_segment_lengths: Tensor) -> dict[str, Tensor]:
    """Return sequence ids, position ids and token types [R, S] of sequences at `starts` of the flattened rows [N]."""
    size = input_ids.numel()
    numbers = torch.arange(1, len(starts) + 1, device=starts.device) * (lengths > 0)
    # A sequence adds its number where it starts and takes it away where it ends.
    changes = torch.zeros(size + 1, dtype=torch.int64, device=starts.device)
    changes.index_add_(0, starts, numbers).index_add_(0, starts + lengths, -numbers)
    sequence_ids = changes[:-1].cumsum(0)
    is_real, sequences = sequence_ids > 0, (sequence_ids - 1).clamp(min=0)
    position_ids = (torch.arange(size, device=starts.device) - starts[sequences]) * is_real
    is_second = (position_ids >= first_segment_lengths[sequences]) & is_real
    return {
        "sequence_ids": sequence_ids.view_as(input_ids),
        "position_ids": position_ids.view_as(input_ids),
        "token_type_ids": is_second.long().view_as(input_ids),
    }
