"""From outcomes to the figures of result.json: means, spreads, the comparison, the confident errors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertline.tasks.metrics import confusion_matrix
from bertline.tasks.storage import Rows

_NUM_CONFIDENT_ERRORS = 20


def spread(scores: Sequence[float]) -> float:
    """Sample standard deviation (n - 1); 0 for a single score, whose spread is not known.

    >>> spread([0.4, 0.5, 0.6]), spread([0.4])
    (0.1, 0.0)
    """
    return round(statistics.stdev(scores), 12) if len(scores) > 1 else 0.0


def comparison(encoder: Sequence[float], random_weights: Sequence[float]) -> dict[str, Any]:
    """Whether the pretrained encoder beats the random one by more than chance would give.

    The threshold is two pooled standard deviations. One seed has no spread, and so proves nothing.

    >>> comparison([0.42, 0.40], [0.28, 0.30])["beats_random_weights"]
    True
    """
    threshold = 2 * math.sqrt((spread(encoder) ** 2 + spread(random_weights) ** 2) / 2)
    difference = statistics.fmean(encoder) - statistics.fmean(random_weights)
    enough_seeds = min(len(encoder), len(random_weights)) > 1
    return {
        "difference": difference,
        "threshold": threshold,
        "beats_random_weights": enough_seeds and difference > threshold,
    }


def score_summary(outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Scores of one arm over its seeds, in the order of the seeds."""
    dev, test = [outcome["dev"] for outcome in outcomes], [outcome["test"] for outcome in outcomes]
    return {
        "seeds": [{"seed": seed, "dev": d, "test": t} for seed, (d, t) in enumerate(zip(dev, test, strict=True))],
        "dev_mean": statistics.fmean(dev),
        "dev_std": spread(dev),
        "test_mean": statistics.fmean(test),
        "test_std": spread(test),
    }


def confident_errors(rows: Rows, probabilities: NDArray[np.float32], labels: Sequence[str]) -> list[dict[str, Any]]:
    """The wrong predictions that the classifier was surest of, surest first."""
    predicted = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(predicted != rows.labels)
    surest = wrong[np.argsort(-probabilities[wrong, predicted[wrong]], kind="stable")][:_NUM_CONFIDENT_ERRORS]
    return [
        {
            "text": rows.texts[i],
            "text_pair": rows.text_pairs[i] if rows.text_pairs is not None else None,
            "gold": labels[rows.labels[i]],
            "predicted": labels[predicted[i]],
            "score": float(probabilities[i, predicted[i]]),
        }
        for i in surest
    ]


def confusion(rows: Rows, probabilities: NDArray[np.float32], num_labels: int) -> list[list[int]]:
    """Counts of test rows, [gold label, predicted label]."""
    return confusion_matrix(rows.labels, probabilities.argmax(axis=1), num_labels).tolist()
