"""What twice the labels would buy: a power law through the errors of models that learned from
shares of the rows.

Errors fall about as a * n^-b with the number n of rows (Hestness et al., arXiv 1712.00409, section
3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bertline.foundation.formats import signed
from bertline.foundation.seeds import generator
from bertline.tasks.metrics import metric_name, score_range


def curve_sizes(num_rows: int) -> list[int]:
    """Return the numbers of rows below all that models learn from."""
    return sorted({num_rows * eighths // 8 for eighths in (1, 2, 4, 6)} - {0})


def drawn(rows: Any, size: int, seed: int, draw: int) -> NDArray[np.int64]:
    """Return the indices of a draw of rows, in which a label has its share; a larger draw contains
    the smaller."""
    order, labels = generator(seed, "label curve", draw).permutation(len(rows)), getattr(rows, "labels", None)
    if isinstance(labels, np.ndarray) and labels.ndim == 1:
        order = order[np.argsort(labels[order], kind="stable")]
        places = [(np.arange(count) + 0.5) / max(count, 1) for count in np.bincount(labels)]
        order = order[np.argsort(np.concatenate(places), kind="stable")]
    return np.sort(order[:size])


def fitted_curve(points: Sequence[tuple[int, float]], metric: str, num_test_rows: int) -> dict[str, Any]:
    """Fit the law to pairs of a number of rows, of at least three, and a test score, as a line
    through logarithms.

    Returns:
        `a` and `b` of the error (what the score lacks to the best possible one), the 95 %
        `interval_of_b` and, if that is above 0, what the score gains by twice the rows (`gain`), at
        b and at the ends of its interval.
    """
    num_rows, scores = np.array(points, dtype=np.float64).T
    most = num_rows.max()
    errors = np.maximum(score_range(metric)[1] - scores, 0.5 / num_test_rows)  # half a row, where all are right
    line = stats.linregress(-np.log(num_rows / most), np.log(errors))
    half = stats.t.ppf(0.975, len(errors) - 2) * np.nan_to_num(line.stderr)  # NaN of equal scores
    b, low, high = (float(each) for each in (line.slope, line.slope - half, line.slope + half))
    gain, *ends = (float(np.exp(line.intercept)) * (1 - 2**-each) for each in (b, low, high))
    curve = {"a": float(np.exp(line.intercept) * most**b), "b": b, "interval_of_b": [low, high]}
    return {**curve, **({"gain": gain, "interval_of_gain": ends} if low > 1e-9 else {})}  # 0, up to rounding


def label_curve(
    table: Sequence[Mapping[str, Any]], titles: Mapping[str, str], metric: str, num_test_rows: int
) -> dict[str, Any]:
    """Return the laws (`curves`) of the systems of `titles` that have five sizes in a table of
    `rows`, `arm` and `test` scores, and a `sentence` on what twice the labels would buy; it is
    empty if that is shown for none."""
    curves, gains = {}, []
    for name, title in titles.items():
        points = [(row["rows"], score) for row in table if row["arm"] == name for score in row["test"]]
        if len({rows for rows, _ in points}) < 5:
            continue
        curves[name] = curve = fitted_curve(points, metric, num_test_rows)
        if "gain" in curve:
            low, high = curve["interval_of_gain"]
            gains.append(f"{signed(curve['gain'])} ({low:.3f} to {high:.3f}) for {title}")
    sentence = (
        f"Twice the labels: {metric_name(metric)} {', '.join(gains)} (95 % interval of the fit, on these test rows)."
        if gains
        else ""
    )
    return {"curves": curves, "sentence": sentence}
