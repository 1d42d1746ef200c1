"""Unigram entropy: the loss of a baseline that knows only token frequencies, which a masked LM must beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertline.examples.batching import masked_batch
from bertline.examples.masking import MaskingPolicy
from bertline.examples.store import Array, ExampleStore
from bertline.foundation.labels import IGNORED_LABEL

_BATCH_EXAMPLES = 1024
_BATCH_TOKENS = 1 << 22


def unigram_entropy(train_counts: npt.ArrayLike, target_counts: npt.ArrayLike, special_ids: Sequence[int]) -> float:
    """Return the cross-entropy, in nats, of the train split's token frequencies on the validation targets.

    Args:
        train_counts: [vocab_size] count of each token in the train examples. One is added to each count, so that
            tokens unseen in training do not have infinite loss.
        target_counts: [vocab_size] count of each token among the validation targets.
        special_ids: Ids of tokens that are never targets; they get probability 0.

    Example:
        >>> round(unigram_entropy([0, 3, 1], [0, 2, 0], special_ids=[0]), 4)  # -log(4 / 6)
        0.4055
    """
    smoothed = np.asarray(train_counts, dtype=np.float64) + 1
    smoothed[list(special_ids)] = 0
    targets = np.asarray(target_counts, dtype=np.float64)
    seen = targets > 0
    surprise = -np.log(smoothed[seen] / smoothed.sum())
    return float((targets[seen] * surprise).sum() / targets.sum())


def token_counts(store: ExampleStore, vocab_size: int) -> Array:
    """Return [vocab_size] the count of each token in the examples, including special tokens."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for ids in store.id_shards():
        for start in range(0, len(ids), _BATCH_TOKENS):  # in batches, as bincount makes a copy four times as large
            counts += np.bincount(ids[start : start + _BATCH_TOKENS], minlength=vocab_size)
    return counts


def target_counts(store: ExampleStore, *, seed: int, policy: MaskingPolicy) -> Array:
    """Return [vocab_size] the count of each token among the targets of epoch 0, whose masks validation always uses."""
    counts = np.zeros(policy.vocab_size, dtype=np.int64)
    for start in range(0, len(store), _BATCH_EXAMPLES):
        indices = np.arange(start, min(start + _BATCH_EXAMPLES, len(store)))
        labels = masked_batch(store, indices, epoch=0, seed=seed, policy=policy)["masked_labels"]
        counts += np.bincount(labels[labels != IGNORED_LABEL], minlength=policy.vocab_size)
    return counts
