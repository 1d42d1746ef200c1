"""Baselines for tagging: each word's most frequent tag, and linear taggers on a window of words and on vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bertline.sweep.baselines.base import Baseline, BaselineInputs
from bertline.sweep.baselines.vectors import most_frequent, tagging_baselines


def baselines(inputs: BaselineInputs) -> list[Baseline]:
    """Return each word's most frequent tag and linear taggers.

    Only the margin of O is moved by a threshold; here no tag stands for "none".
    """
    return tagging_baselines(inputs, _tag_of_rare_words, thresholds=(0.0,))


def _tag_of_rare_words(counts: Sequence[Counter[int]]) -> int:
    """Return the most frequent tag of the words that train has once, which unknown words are like."""
    rare = Counter(tag for found in counts if found.total() == 1 for tag in found)
    return most_frequent(rare or sum(counts, Counter()))
