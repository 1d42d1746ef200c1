"""Baseline for summarisation: the document's first sentences, which are hard to beat on news."""

from __future__ import annotations

import numpy as np

from bertline.sweep.baselines.base import Baseline, Given, predictions_of


def baselines(given: Given) -> list[Baseline]:
    """Return the baseline that scores sentences by position, of which the task selects the first `num_sentences`."""
    # Earlier sentences have higher scores, from 1 towards 0.
    return [
        Baseline(
            name="first_sentences",
            title="first sentences of the document",
            predictions=predictions_of(
                lambda rows: [np.linspace(1, 0, len(sentences), endpoint=False) for sentences in rows.sentences],
                given.dev,
                given.tests,
            ),
        )
    ]
