"""Intervals and paired tests by resampling the test rows.

What is resampled are the rows alone: an interval says how much a score would change with other test rows of the same
kind. How much it changes with the seed of training is the standard deviation over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertline.foundation.seeds import generator

_PERCENTILES = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class PairedTest:
    """One system against another on the same rows."""

    difference: float
    """Score of the first minus that of the second."""
    interval: tuple[float, float]
    """95 %, of the difference."""
    p_value: float
    """Two-sided: how often rows alone would give a difference as large if there were none."""


def resampled_scores(
    systems: Mapping[str, Sequence[NDArray[np.float64]]],
    score: Callable[[NDArray[np.float64]], float],
    *,
    num_samples: int,
    seed: int,
) -> dict[str, NDArray[np.float64]]:
    """Scores of every system on the same resamples of the rows (drawn with replacement).

    Args:
        systems: For each system, the row statistics [N, K] of each of its seeds (one, where it has none). The rows are
            the same and in the same order everywhere.
        score: The score of any rows from their statistics.
        num_samples: B.
        seed: Of the draws.

    Returns:
        [B] for each system: the mean over its seeds of their scores on each resample.

    References:
        Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapters 6 and 13.
    """
    num_rows = len(next(iter(systems.values()))[0])
    random = generator(seed, "bootstrap")
    scores = {name: np.empty(num_samples) for name in systems}
    for sample in range(num_samples):
        rows = random.integers(num_rows, size=num_rows)
        for name, of_seeds in systems.items():
            scores[name][sample] = np.mean([score(statistics[rows]) for statistics in of_seeds])
    return scores


def interval(scores: NDArray[np.number]) -> tuple[float, float]:
    """The 95 % percentile interval of resampled scores.

    >>> interval(np.arange(1001))
    (25.0, 975.0)
    """
    low, high = np.nanpercentile(scores, _PERCENTILES)
    return float(low), float(high)


def paired_test(
    score: float, other_score: float, resampled: NDArray[np.float64], other_resampled: NDArray[np.float64]
) -> PairedTest:
    """Compare two systems by their scores on the same resamples.

    The resampled differences lie around the difference that was found; shifted to lie around none, they show what rows
    alone would give. One more sample, the data itself, is counted, so that no p-value is 0.

    References:
        Efron and Tibshirani 1993, section 16.4. Berg-Kirkpatrick, Burkett and Klein, "An Empirical Investigation of
        Statistical Significance in NLP", EMNLP 2012, section 2.1, where it is one-sided.
    """
    difference = score - other_score
    differences = resampled - other_resampled
    # A rounding error must not make two equal differences unequal.
    as_large = np.abs(differences - difference) >= abs(difference) - 1e-12
    p_value = (1 + int(as_large.sum())) / (1 + len(differences))
    return PairedTest(difference, interval(differences), p_value)
