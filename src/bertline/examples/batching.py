"""Batches of masked and padded examples for training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertline.examples.masking import MaskedExample, MaskingPolicy, mask_rows, max_targets
from bertline.examples.store import Array, ExampleStore
from bertline.foundation.labels import IGNORED_LABEL


def masked_batch(
    store: ExampleStore, indices: npt.ArrayLike, *, epoch: int, seed: int, policy: MaskingPolicy
) -> dict[str, Array]:
    """Read, mask and pad the examples at `indices` as one vectorised batch.

    Equal to `mask_example` for each example, then `collate`, in about a twentieth of the time. Rows are padded to
    `store.max_length`, so the batch shape depends only on the number of examples.

    Args:
        store: The examples.
        indices: [B] example ids.
        epoch: Epoch number, from 0.
        seed: Root seed of the masks (`examples.seed`).
        policy: `masking_policy(store.manifest)`.

    Returns:
        The arrays of `collate`.
    """
    example_ids = np.asarray(indices, dtype=np.int64)
    examples = store.padded(example_ids)
    num_columns = max_targets(store.max_length, policy.mask_prob, num_segments=store.num_segments)
    rows = mask_rows(examples.input_ids, example_ids, seed=seed, epoch=epoch, policy=policy, num_columns=num_columns)
    columns = np.arange(store.max_length)
    attention_mask = columns < examples.lengths[:, None]
    return {
        "input_ids": rows.input_ids,
        "token_type_ids": ((columns >= examples.first_segment_lengths[:, None]) & attention_mask).astype(np.int64),
        "attention_mask": attention_mask.astype(np.int64),
        "masked_positions": rows.masked_positions,
        "masked_labels": rows.masked_labels,
        # The labels are a strided column of the store's records. A step at the end of an epoch concatenates two
        # batches, which makes them contiguous; without a copy here, the different strides would cause recompilation.
        "next_sentence_labels": np.ascontiguousarray(examples.next_sentence_labels),
    }


def collate(examples: Sequence[MaskedExample], *, max_length: int, max_targets: int, pad_id: int) -> dict[str, Array]:
    """Pad masked examples to the same shape.

    Returns:
        Arrays for B examples, S = `max_length`, P = `max_targets`, all int64: `input_ids` [B, S]; `token_type_ids`
        [B, S], 0 in padding; `attention_mask` [B, S], 1 for real tokens; `masked_positions` [B, P], 0 where unused;
        `masked_labels` [B, P], -100 where unused; `next_sentence_labels` [B], 1 = random next.

    Example:
        >>> one = MaskedExample(np.array([2, 4, 3]), np.array([0, 0, 0]), np.array([1]), np.array([7]), 0)
        >>> batch = collate([one], max_length=4, max_targets=2, pad_id=0)
        >>> batch["input_ids"].tolist(), batch["attention_mask"].tolist()
        ([[2, 4, 3, 0]], [[1, 1, 1, 0]])
        >>> batch["masked_positions"].tolist(), batch["masked_labels"].tolist()
        ([[1, 0]], [[7, -100]])
    """
    size = len(examples)
    batch = {
        "input_ids": np.full((size, max_length), pad_id, dtype=np.int64),
        "token_type_ids": np.zeros((size, max_length), dtype=np.int64),
        "attention_mask": np.zeros((size, max_length), dtype=np.int64),
        "masked_positions": np.zeros((size, max_targets), dtype=np.int64),
        "masked_labels": np.full((size, max_targets), IGNORED_LABEL, dtype=np.int64),
        "next_sentence_labels": np.array([example.next_sentence_label for example in examples], dtype=np.int64),
    }
    for row, example in enumerate(examples):
        length, targets = len(example.input_ids), len(example.masked_positions)
        batch["input_ids"][row, :length] = example.input_ids
        batch["token_type_ids"][row, :length] = example.token_type_ids
        batch["attention_mask"][row, :length] = 1
        batch["masked_positions"][row, :targets] = example.masked_positions
        batch["masked_labels"][row, :targets] = example.masked_labels
    return batch
