"""Baselines for tagging: each word's most frequent tag, and linear taggers on a window of words and on vectors."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from bertline.finetuning.word_tagging import TagPredictions
from bertline.sweep.baselines.base import Baseline, Given
from bertline.sweep.baselines.linear_tagger import window_tagger
from bertline.sweep.baselines.vectors import NAMES, tagging_baseline
from bertline.tasks.stored_rows import TaggedRows

# Only the margin of O is moved by a threshold; here no tag stands for "none".
_THRESHOLDS = (0.0,)


def baselines(given: Given) -> list[Baseline]:
    """Return each word's most frequent tag and linear taggers on a window of words and on an encoder's vectors."""
    made = [_most_frequent_tag(given), *window_tagger(given, thresholds=_THRESHOLDS)]
    for name in NAMES if given.encoder is not None else ():
        made += tagging_baseline(name, given, thresholds=_THRESHOLDS)
    return made


def _most_frequent_tag(given: Given) -> Baseline:
    """Give a word the tag that it has most often in train, in this spelling.

    A word that train does not have gets the most frequent tag of the words that train has once, which are like it.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for words, tags in zip(given.train.words, given.train.tags, strict=True):
        for word, tag in zip(words, tags, strict=True):
            counts[word][tag] += 1
    numbers = {label: number for number, label in enumerate(given.kind.labels)}
    rare = Counter(tag for found in counts.values() if found.total() == 1 for tag in found)
    unknown = numbers[_most_frequent(rare or sum(counts.values(), Counter()))]
    known = {word: numbers[_most_frequent(found)] for word, found in counts.items()}

    def predicted(rows: TaggedRows) -> TagPredictions:
        found = [np.array([known.get(word, unknown) for word in words]) for words in rows.words]
        return TagPredictions(found, np.ones(len(rows)))

    return given.baseline("most_frequent_tag", "most frequent tag of each word", predicted)


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))
