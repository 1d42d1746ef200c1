"""Linear taggers over any features of words: dev chooses the penalty, and how readily a tag is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from bertline.finetuning.kinds.token_classification import TagPredictions, TokenClassification
from bertline.sweep.baselines.base import Baseline, dev_score
from bertline.sweep.baselines.linear import Features, LinearModel, margins_of
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import TaggedRows

# What is taken from the margin of O: above 0, more entities are given.
_THRESHOLDS = tuple(sorted((step / 20 for step in range(-12, 91)), key=lambda value: (abs(value), value)))


def linear_tagger(
    kind: TokenClassification,
    train: TaggedRows,
    dev: TaggedRows,
    tests: Mapping[SplitName, TaggedRows],
    *,
    features: Callable[[TaggedRows], Features],
    models: Sequence[LinearModel],
    name: str,
    title: str,
) -> list[Baseline]:
    """Each word by itself under the linear model, with the threshold for O, that do best on dev.

    Args:
        kind: The task's.
        train: The rows that are read.
        dev: Chooses.
        tests: Scored.
        features: Those of all words of some rows, [W, F].
        models: To choose from; of equals the first.
        name: See `Baseline`.
        title: See `Baseline`.

    Returns:
        None where all words of train have one tag.
    """
    numbers = {label: number for number, label in enumerate(kind.labels)}
    gold = np.array([numbers[tag] for tags in train.tags for tag in tags], dtype=np.int64)
    if len(np.unique(gold)) < 2:
        return []
    of_train, of_dev = features(train), features(dev)
    best, best_score = None, -np.inf
    for model in models:
        margins = margins_of(model, of_train, gold, len(kind.labels))
        on_dev = margins(of_dev)
        for threshold in _THRESHOLDS:
            score = dev_score(kind, dev, _tags(dev, on_dev, threshold))
            if score > best_score:
                best, best_score = (model, threshold, margins), score
    assert best is not None
    model, threshold, margins = best
    return [
        Baseline(
            name=name,
            title=title,
            predictions={
                split: _tags(rows, margins(features(rows)), threshold) for split, rows in {"dev": dev, **tests}.items()
            },
            settings={**model.settings(), "threshold": threshold},
        )
    ]


def first_words(rows: TaggedRows, most: int) -> TaggedRows:
    """Whole sentences from the first on, of at most so many words together; at least one sentence."""
    reached = np.cumsum([len(words) for words in rows.words])
    return rows.first(max(1, int(np.searchsorted(reached, most, side="right"))))


def _tags(rows: TaggedRows, margins: NDArray[np.float64], threshold: float) -> TagPredictions:
    """From margins of all words, [W, L]; the first label is O."""
    shifted = margins.copy()
    shifted[:, 0] -= threshold
    labels = shifted.argmax(axis=1)
    of_words = softmax(2 * shifted, axis=1)[np.arange(len(labels)), labels]
    ends = np.cumsum([len(words) for words in rows.words])
    by_row, sure = np.split(labels, ends)[: len(rows)], np.split(of_words, ends)[: len(rows)]
    return TagPredictions(by_row, np.array([float(np.prod(one)) for one in sure]), sure)
