"""Baseline for summarisation: the document's first sentences, which are hard to beat on news."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bertline.sweep.baselines.base import Baseline, Given
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import SummaryRows


def summary_baselines(dev: SummaryRows, tests: Mapping[SplitName, SummaryRows]) -> list[Baseline]:
    """Return the baseline that scores sentences by position, of which the task selects the first `num_sentences`."""
    return [
        Baseline(
            name="first_sentences",
            title="first sentences of the document",
            predictions={
                # Earlier sentences have higher scores, from 1 towards 0.
                split: [np.linspace(1, 0, len(sentences), endpoint=False) for sentences in rows.sentences]
                for split, rows in {"dev": dev, **tests}.items()
            },
        )
    ]


def baselines(given: Given) -> list[Baseline]:
    """Return the first sentences."""
    return summary_baselines(given.dev, given.tests)
