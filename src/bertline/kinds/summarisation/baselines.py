"""Baseline for summarisation: the document's first sentences, which are hard to beat on news."""

from __future__ import annotations

import numpy as np

from bertline.finetuning.sentence_groups import OfSentences
from bertline.sweep.baselines.base import Baseline, BaselineInputs
from bertline.tasks.stored_rows import SummaryRows


def baselines(inputs: BaselineInputs) -> list[Baseline]:
    """Return the baseline that scores sentences by position, of which the task selects the first `num_sentences`."""

    def earlier_first(rows: SummaryRows) -> OfSentences:
        """Return scores of the sentences, from 1 towards 0."""
        return [np.linspace(1, 0, len(sentences), endpoint=False) for sentences in rows.sentences]

    return [inputs.baseline("first_sentences", "first sentences of the document", earlier_first)]
