"""Calibration of predicted probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 15


def expected_calibration_error(
    probabilities: NDArray[np.floating], happened: NDArray[np.bool_], *, num_bins: int = NUM_BINS
) -> float:
    """Compute the expected calibration error over bins of equal width.

    Args:
        probabilities: [N] in [0, 1]; for a classifier, the probability of the predicted label.
        happened: [N] whether the event happened; for a classifier, whether the predicted label is right.
        num_bins: Number M of bins: [0, 1/M], (1/M, 2/M], and so on.

    Returns:
        Sum over bins of |bin| / N * |fraction that happened - mean probability|; 0.0 without rows.

    References:
        Guo et al. 2017, On Calibration of Modern Neural Networks (arXiv 1706.04599), section 2, equation 3 (after
        Naeini et al. 2015), with the 15 bins of its section 5.

    Example:
        >>> round(expected_calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False])), 3)
        0.1
    """
    if not len(probabilities):
        return 0.0
    bins = np.clip(np.ceil(probabilities * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    gaps = np.bincount(bins, weights=happened - probabilities.astype(np.float64), minlength=num_bins)
    return float(np.abs(gaps).sum() / len(probabilities))
