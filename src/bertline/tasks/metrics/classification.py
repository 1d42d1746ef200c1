"""Scores of a classifier, by the formulas that scikit-learn uses (held to it by a test), in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def scores_of(matrix: NDArray[np.integer]) -> dict[str, float]:
    """Every score of a confusion matrix by name; `f1` is that of the second of exactly two labels.

    Example:
        >>> scores_of(confusion_matrix(np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0]), 2))["accuracy"]
        0.75
    """
    scores = {"accuracy": accuracy(matrix), "macro_f1": macro_f1(matrix), "matthews": matthews(matrix)}
    # Of one label a row, the micro average of F1 is the accuracy.
    scores["micro_f1"] = scores["accuracy"]
    if len(matrix) == 2:
        used = matrix[1].sum() + matrix[:, 1].sum()
        scores["f1"] = float(2 * matrix[1, 1] / used) if used else 0.0
    return scores


def confusion_matrix(gold: NDArray[np.integer], predicted: NDArray[np.integer], num_labels: int) -> NDArray[np.integer]:
    """Counts of rows, [gold label, predicted label].

    Example:
        >>> confusion_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), 2).tolist()
        [[1, 0], [1, 1]]
    """
    cells = np.bincount(gold * num_labels + predicted, minlength=num_labels * num_labels)
    return cells.reshape(num_labels, num_labels)


def accuracy(matrix: NDArray[np.integer]) -> float:
    """Share of rows on the diagonal."""
    return float(np.trace(matrix) / matrix.sum())


def macro_f1(matrix: NDArray[np.integer]) -> float:
    """Mean of the labels' F1, over the labels that are gold or predicted at least once.

    A label that nobody uses has no F1 and takes no part, as in scikit-learn's default.
    """
    hits = np.diag(matrix)
    used = matrix.sum(axis=0) + matrix.sum(axis=1)
    present = used > 0
    return float(np.mean(2 * hits[present] / used[present]))


def matthews(matrix: NDArray[np.integer]) -> float:
    """Matthews correlation for any number of labels; 0 where gold or predictions have one label only.

    References:
        Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004, equation 8.
    """
    counts = matrix.astype(np.float64)
    total, hits = counts.sum(), np.trace(counts)
    gold, predicted = counts.sum(axis=1), counts.sum(axis=0)
    spread = np.sqrt(total**2 - predicted @ predicted) * np.sqrt(total**2 - gold @ gold)
    return float((hits * total - gold @ predicted) / spread) if spread > 0 else 0.0
