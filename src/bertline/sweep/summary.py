"""Figures of result.json: means, spreads and confident errors."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

NUM_CONFIDENT_ERRORS = 20
"""Number of confident errors in result.json; errors.html has more."""
_LONGEST_TEXT, _LONGEST_LIST = 2000, 20
# Columns of `TaskKind.table` that are not the row's inputs.
_VERDICT = ("id", "gold", "predicted", "score", "correct")


def spread(scores: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1); None for a single score, whose spread is unknown.

    >>> spread([0.4, 0.5, 0.6]), spread([0.4])
    (0.1, None)
    """
    return round(statistics.stdev(scores), 12) if len(scores) > 1 else None


def with_spread(mean: float, std: float | None) -> str:
    """Format a score for the terminal.

    >>> with_spread(0.42, 0.01), with_spread(0.42, None)
    ('0.420 ± 0.010', '0.420')
    """
    return f"{mean:.3f}" if std is None else f"{mean:.3f} ± {std:.3f}"


def means(scores: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """Return the mean of each score over seeds and its spread, which is None for a single seed.

    >>> means([{"f1": 0.4}, {"f1": 0.6}])
    {'f1': {'mean': 0.5, 'std': 0.141421356237}}
    """
    by_name = {name: [of_seed[name] for of_seed in scores] for name in scores[0]}
    return {name: {"mean": statistics.fmean(values), "std": spread(values)} for name, values in by_name.items()}


def confident_errors(predictions: pa.Table, most: int, *, right_from: float) -> list[dict[str, Any]]:
    """Return the wrong predictions that the model was most confident of, most confident first.

    Long texts and lists are cut.

    Args:
        predictions: Table of predictions, as returned by `TaskKind.table`.
        most: Maximum number of errors.
        right_from: `TaskKind.right_from`.
    """
    verdicts = predictions.select(["score", "correct"]).to_pylist()
    wrong = [place for place, row in enumerate(verdicts) if float(row["correct"]) < right_from]
    wrong.sort(key=lambda place: (-(verdicts[place]["score"] or 0.0), float(verdicts[place]["correct"]), place))
    inputs = [name for name in predictions.column_names if name not in _VERDICT and not name.startswith("probability_")]
    rows = predictions.select(["id", *inputs, "gold", "predicted", "score"]).take(pa.array(wrong[:most], pa.int64()))
    return [{name: _shortened(value) for name, value in row.items()} for row in rows.to_pylist()]


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[:_LONGEST_TEXT] + " …"
    return [_shortened(item) for item in value[:_LONGEST_LIST]] if isinstance(value, list) else value
