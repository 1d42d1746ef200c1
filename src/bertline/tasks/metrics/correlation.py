"""Correlations of predicted and gold numbers with the formulas of SciPy (tests compare both), in NumPy.

An undefined correlation is 0.0: with fewer than two rows, or if all gold or all predicted numbers are equal.
"""

import numpy as np
from numpy.typing import NDArray


def pearson(gold: NDArray[np.floating], predicted: NDArray[np.floating]) -> float:
    """Return Pearson's linear correlation, -1 to 1."""
    if len(gold) < 2 or _constant(gold) or _constant(predicted):
        return 0.0
    one, other = _unit(gold), _unit(predicted)
    return float(np.clip(one @ other, -1.0, 1.0))


def spearman(gold: NDArray[np.floating], predicted: NDArray[np.floating]) -> float:
    """Return Spearman's rank correlation, -1 to 1; equal numbers share the mean of their ranks. NaN in gives NaN."""
    from scipy.stats import rankdata

    if np.isnan(gold).any() or np.isnan(predicted).any():
        return float("nan")
    return pearson(rankdata(gold), rankdata(predicted))


def _constant(numbers: NDArray[np.floating]) -> bool:
    return bool((numbers == numbers[0]).all())


def _unit(numbers: NDArray[np.floating]) -> NDArray[np.float64]:
    """Center numbers and scale them to length 1; dividing by the maximum first avoids under- and overflow of
    squares."""
    centred = numbers.astype(np.float64) - np.mean(numbers, dtype=np.float64)
    largest = np.abs(centred).max()
    centred = centred / largest if largest > 0 else centred
    length = np.linalg.norm(centred)
    return centred / length if length > 0 else centred
