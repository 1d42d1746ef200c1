"""Metrics of masked token prediction: top-1 and top-k accuracy, and pseudo-perplexity."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

STATISTICS = ("log_prob_sum", "tokens", "top1_hits", "topk_hits")
"""Columns of a row's statistics."""


def scores_of(statistics: NDArray[np.float64]) -> dict[str, float]:
    """Return the scores of any rows from their statistics, [N, 4]. Scores are averages over tokens, not rows.

    `negative_log_perplexity` is the mean log probability (in nats) of the true token when only this token is masked.
    Without a token to score, all scores are 0.

    References:
        Salazar et al., Masked Language Model Scoring (arXiv 1910.14659), section 2.1 and equation 3.

    Example:
        >>> scores_of(np.array([[-4.0, 2, 1, 2], [-2.0, 2, 1, 1]]))["negative_log_perplexity"]
        -1.5
    """
    log_prob_sum, tokens, top1, topk = (float(total) for total in statistics.reshape(-1, len(STATISTICS)).sum(axis=0))
    tokens = max(tokens, 1.0)
    return {
        "top1_accuracy": top1 / tokens,
        "topk_accuracy": topk / tokens,
        "negative_log_perplexity": log_prob_sum / tokens,
    }


def pseudo_perplexity(statistics: NDArray[np.float64]) -> float:
    """Return the exponential of the negative mean log probability: lower is better, 1 is perfect.

    >>> round(pseudo_perplexity(np.array([[-4.0 * math.log(8), 4, 0, 0]])), 6)
    8.0
    """
    return math.exp(-scores_of(statistics)["negative_log_perplexity"])
