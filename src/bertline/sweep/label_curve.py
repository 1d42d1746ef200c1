"""What twice the labels would buy: a power law through the errors of models that learned from shares of the rows.

Errors fall about as a * n^-b with the number n of rows (Hestness et al., arXiv 1712.00409, section 3). The law is a
line through the logarithms, fitted by least squares; nothing is said beyond twice the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bertline.foundation.formats import signed
from bertline.foundation.seeds import generator
from bertline.tasks.metrics import metric_name

_EIGHTHS = (1, 2, 4, 6)


def curve_sizes(num_rows: int) -> list[int]:
    """Return the numbers of rows below all that models learn from.

    >>> curve_sizes(1000), curve_sizes(5)
    ([125, 250, 500, 750], [1, 2, 3])
    """
    return sorted({num_rows * eighths // 8 for eighths in _EIGHTHS} - {0})


def drawn(rows: Any, size: int, seed: int, draw: int) -> NDArray[np.int64]:
    """Return the indices of a draw of rows, in which a label has its share; a larger draw contains the smaller."""
    order = generator(seed, "label curve", draw).permutation(len(rows))
    labels = getattr(rows, "labels", None)
    if isinstance(labels, np.ndarray) and labels.ndim == 1:
        place = np.empty(len(rows))
        for label in np.unique(labels):
            of_label = order[labels[order] == label]
            place[of_label] = (np.arange(len(of_label)) + 0.5) / len(of_label)
        order = order[np.argsort(place[order], kind="stable")]
    return np.sort(order[:size])


def fitted_curve(points: Sequence[tuple[int, float]], metric: str, num_test_rows: int) -> dict[str, Any]:
    """Fit the law to pairs of a number of rows, of at least three, and a test score.

    Returns:
        `a` and `b` of the error (what the score lacks to the best possible one), the 95 % `interval_of_b`, and, if that
        is above 0, what the score gains by twice the rows (`gain`) with its 95 % `interval_of_gain`, by the delta
        method on its logarithm.
    """
    num_rows, scores = np.array(points, dtype=np.float64).T
    best = 0.0 if metric.startswith("negative_") else 1.0
    logs = np.log(np.maximum(best - scores, 0.5 / num_test_rows))  # half a row, where all are right
    most = num_rows.max()
    design = np.column_stack((np.ones(len(logs)), -np.log(num_rows / most)))
    inverse, freedom = np.linalg.pinv(design.T @ design), len(logs) - 2
    level, b = inverse @ design.T @ logs
    covariance = inverse * ((logs - design @ (level, b)) ** 2).sum() / freedom
    quantile = stats.t.ppf(0.975, freedom)

    def interval(value: float, error: float) -> list[float]:
        return [float(value - quantile * error), float(value + quantile * error)]

    of_b = interval(b, covariance[1, 1] ** 0.5)
    curve = {"a": float(np.exp(level) * most**b), "b": float(b), "interval_of_b": of_b}
    if of_b[0] < 1e-9:  # of scores that are all the same, it is 0 up to rounding
        return curve
    share = 1 - 2**-b
    by_level_and_b = np.array([1, math.log(2) * 2**-b / share])  # derivatives of log(exp(level) * share)
    error = (by_level_and_b @ covariance @ by_level_and_b) ** 0.5
    log_gain = float(level + np.log(share))
    return {**curve, "gain": math.exp(log_gain), "interval_of_gain": np.exp(interval(log_gain, error)).tolist()}


def curve_sentence(curves: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str], metric: str) -> str:
    """Return a sentence on what twice the labels would buy each system; empty if that is shown for none."""
    gains = [
        f"{signed(curve['gain'])} ({' to '.join(f'{end:.3f}' for end in curve['interval_of_gain'])}) for {titles[name]}"
        for name, curve in curves.items()
        if "gain" in curve
    ]
    return f"Twice the labels: {metric_name(metric)} {', '.join(gains)} (95 % interval)." if gains else ""
