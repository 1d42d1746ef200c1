"""Baseline of summarisation: the document's first sentences, which are hard to beat on news."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bertline.sweep.baselines.base import Baseline
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import SummaryRows


def summary_baselines(dev: SummaryRows, tests: Mapping[SplitName, SummaryRows]) -> list[Baseline]:
    """As many sentences as the task's summaries have (`num_sentences`)."""
    return [
        Baseline(
            name="first_sentences",
            title="first sentences of the document",
            predictions={
                # The earlier, the higher the score, between 1 and 0.
                split: [np.linspace(1, 0, len(sentences), endpoint=False) for sentences in rows.sentences]
                for split, rows in {"dev": dev, **tests}.items()
            },
        )
    ]
