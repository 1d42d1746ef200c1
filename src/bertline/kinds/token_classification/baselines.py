"""Baseline for token classification: each word's most frequent tag in train."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from bertline.finetuning.word_tagging import TagPredictions
from bertline.sweep.baselines.base import Baseline, Given
from bertline.sweep.baselines.linear_tagger import window_tagger
from bertline.sweep.baselines.vectors import NAMES, tagging_baseline
from bertline.tasks.stored_rows import TaggedRows


def most_frequent_tag(given: Given) -> Baseline:
    """Return the baseline that predicts the tag that each word, in this spelling, has most often in train.

    Words that train does not have get O. Among equally frequent tags, the first in the task's labels is taken.
    """
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    numbers = {label: number for number, label in enumerate(given.kind.labels)}
    for words, tags in zip(given.train.words, given.train.tags, strict=True):
        for word, tag in zip(words, tags, strict=True):
            counts[word][numbers[tag]] += 1
    most_frequent = {word: max(found, key=lambda n: (found[n], -n)) for word, found in counts.items()}
    shares = {word: counts[word][best] / counts[word].total() for word, best in most_frequent.items()}
    label_counts = given.kind.label_counts(given.train)
    unknown_share = float(label_counts[0] / max(label_counts.sum(), 1))

    def predicted(rows: TaggedRows) -> TagPredictions:
        return TagPredictions(
            [np.array([most_frequent.get(word, 0) for word in words], dtype=np.int64) for words in rows.words],
            np.array([np.prod([shares.get(word, unknown_share) for word in words]) for words in rows.words]),
        )

    return given.baseline("most_frequent_tag", "most frequent tag of each word", predicted)


def baselines(given: Given) -> list[Baseline]:
    """Return each word's most frequent tag and linear taggers on a window of words and on an encoder's vectors."""
    made = [most_frequent_tag(given), *window_tagger(given)]
    for name in NAMES if given.encoder is not None else ():
        made += tagging_baseline(name, given)
    return made
