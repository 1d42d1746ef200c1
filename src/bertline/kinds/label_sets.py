"""Sets of labels that hold the right one for a chosen share of texts: split conformal prediction.

Angelopoulos & Bates, arXiv 2107.07511, section 1. It holds on average over texts like the rows that the scores are of,
if these chose neither the model nor its settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bertline.foundation.errors import ConfigError, DataError

LABEL_SETS = "label_sets.json"
"""File in the folder of a classifier with one label a row."""
_FEWEST_ROWS = 19


@dataclass(frozen=True, slots=True)
class LabelSets:
    """How likely the right label is for rows that a classifier did not learn from."""

    scores: list[float]
    """One minus the probability of the right label of each row, ascending."""
    rows: str
    """Which rows these are: `half of dev`, which chose nothing; `dev` or `out of fold`, and coverage is approximate."""

    @classmethod
    def of(cls, statistics: NDArray[np.float64], rows: str) -> Self:
        """Take the scores of rows from the statistics of `Classification`: gold label, prediction, probabilities."""
        scores = 1 - statistics[np.arange(len(statistics)), 2 + statistics[:, 0].astype(np.int64)]
        return cls((np.ceil(np.sort(scores) * 1e6) / 1e6).tolist(), rows)

    def lowest_probability(self, coverage: float) -> float:
        """Return the probability from which on a label is in the set of a text.

        Raises:
            ConfigError: `coverage` is no share between 0 and 1.
            DataError: There are too few rows for this coverage.
        """
        if not isinstance(coverage, float) or not 0 < coverage < 1:
            raise ConfigError(f"coverage is {coverage!r}; expected a share between 0 and 1, such as 0.95.")
        needed = max(_FEWEST_ROWS, math.ceil(round(coverage / (1 - coverage), 6)))
        if len(self.scores) < needed:
            raise DataError(
                f"coverage={coverage} needs at least {needed} labelled rows that the model did not learn from, and "
                f"this model has {len(self.scores)} ({self.rows}). Fine-tune it with more rows"
                + (", or ask for less." if len(self.scores) >= _FEWEST_ROWS else ".")
            )
        return 1 - self.scores[math.ceil(round((len(self.scores) + 1) * coverage, 6)) - 1]

    def measured(self, statistics: NDArray[np.float64]) -> dict[str, Any]:
        """Return which rows the scores are of and, by coverage, the share of other rows whose set holds the right label
        and the mean number of labels of a set; of too few scores nothing."""
        by_coverage = {}
        for coverage in (0.9, 0.95) if len(self.scores) >= _FEWEST_ROWS else ():
            sets = statistics[:, 2:] >= self.lowest_probability(coverage)
            held = sets[np.arange(len(sets)), statistics[:, 0].astype(np.int64)].mean()
            by_coverage[str(coverage)] = {"coverage": float(held), "mean_size": float(sets.sum(axis=1).mean())}
        return {"rows": self.rows, "num_rows": len(self.scores), "by_coverage": by_coverage}
