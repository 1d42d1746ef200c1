"""Accuracy and macro F1 of labels that stand in sequences, from counts of each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def row_counts(gold: NDArray[np.integer], predicted: NDArray[np.integer], num_labels: int) -> NDArray[np.float64]:
    """Return for each label the number of hits, of predicted and of gold occurrences in one row, [3 labels].

    Example:
        >>> row_counts(np.array([0, 1, 1]), np.array([0, 1, 0]), 2).tolist()
        [1.0, 1.0, 2.0, 1.0, 1.0, 2.0]
    """
    counted = (gold[gold == predicted], predicted, gold)
    return np.concatenate([np.bincount(found, minlength=num_labels) for found in counted]).astype(np.float64)


def scores_of(statistics: NDArray[np.float64]) -> dict[str, float]:
    """Return `accuracy` and `macro_f1`, the mean over the labels that occur or were predicted.

    Args:
        statistics: [N, 3 labels], `row_counts` of each row.

    Example:
        >>> scores_of(row_counts(np.array([0, 1, 1]), np.array([0, 1, 0]), 2)[None])
        {'accuracy': 0.6666666666666666, 'macro_f1': 0.6666666666666666}
    """
    hits, predicted, gold = statistics.sum(axis=0).reshape(3, -1)
    occurs = predicted + gold > 0
    f1 = 2 * hits[occurs] / (predicted + gold)[occurs]
    return {
        "accuracy": float(hits.sum() / gold.sum()) if gold.any() else 0.0,
        "macro_f1": float(f1.mean()) if len(f1) else 0.0,
    }


def by_label(statistics: NDArray[np.float64], labels: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and support of each label that occurs or was predicted; see `scores_of`."""
    counts = statistics.sum(axis=0).reshape(3, -1)
    return {
        label: {
            "precision": hits / predicted if predicted else 0.0,
            "recall": hits / gold if gold else 0.0,
            "f1": 2 * hits / (predicted + gold),
            "support": int(gold),
        }
        for label, (hits, predicted, gold) in zip(labels, counts.T.tolist(), strict=True)
        if predicted + gold
    }
