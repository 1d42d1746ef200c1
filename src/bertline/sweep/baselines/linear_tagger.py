"""Linear taggers over any features of words: dev chooses the penalty and the threshold for predicting entities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertline.finetuning.word_tagging import TagPredictions, WordTagger
from bertline.sweep.baselines.base import Baseline, dev_score
from bertline.sweep.baselines.linear import Features, LinearModel, margins_of
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import TaggedRows


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearTagger:
    """A linear model of words, and the settings from which dev chooses."""

    name: str
    """See `Baseline`."""
    title: str
    """See `Baseline`."""
    features: Callable[[Sequence[TaggedRows]], Sequence[Features]]
    """Maps train, dev and the tests, in this order, to the features of all their words, [W, F] each."""
    models: Sequence[LinearModel]
    """Models to choose from; among equals, the first."""
    thresholds: Sequence[float]
    """Values to subtract from the margin of O: above 0, more entities are predicted. Among equals, the one nearest to
    0."""


def tagged_by(
    tagger: LinearTagger,
    kind: WordTagger,
    train: TaggedRows,
    dev: TaggedRows,
    tests: Mapping[SplitName, TaggedRows],
) -> list[Baseline]:
    """Tag each word independently, with the model and the threshold that score best on dev.

    Returns:
        One baseline; an empty list if all words of train have the same tag.
    """
    numbers = {label: number for number, label in enumerate(kind.labels)}
    gold = np.array([numbers[tag] for tags in train.tags for tag in tags], dtype=np.int64)
    if len(np.unique(gold)) < 2:
        return []
    of_train, of_dev, *of_tests = tagger.features([train, dev, *tests.values()])
    nearest_first = sorted(tagger.thresholds, key=lambda value: (abs(value), value))
    best, best_score = None, -np.inf
    for model in tagger.models:
        margins = margins_of(model, of_train, gold, len(kind.labels))
        on_dev = margins(of_dev)
        for threshold in nearest_first:
            score = dev_score(kind, dev, _tags(dev, on_dev, threshold))
            if score > best_score:
                best, best_score = (model, threshold, margins), score
    assert best is not None
    model, threshold, margins = best
    predictions: dict[SplitName, TagPredictions] = {"dev": _tags(dev, margins(of_dev), threshold)}
    for (split, rows), found in zip(tests.items(), of_tests, strict=True):
        predictions[split] = _tags(rows, margins(found), threshold)
    settings = {**model.settings(), **({"threshold": threshold} if len(tagger.thresholds) > 1 else {})}
    return [Baseline(name=tagger.name, title=tagger.title, predictions=predictions, settings=settings)]


def first_words(rows: TaggedRows, most: int) -> TaggedRows:
    """Return the first whole sentences that have at most `most` words together; at least one sentence."""
    reached = np.cumsum([len(words) for words in rows.words])
    return rows.first(max(1, int(np.searchsorted(reached, most, side="right"))))


def _tags(rows: TaggedRows, margins: NDArray[np.float64], threshold: float) -> TagPredictions:
    """Return predictions from the margins of all words, [W, L]; the first label is O. The confidence, which is not used
    for baselines, is always 1."""
    shifted = margins.copy()
    shifted[:, 0] -= threshold
    ends = np.cumsum([len(words) for words in rows.words])
    return TagPredictions(np.split(shifted.argmax(axis=1), ends)[: len(rows)], np.ones(len(rows)))
