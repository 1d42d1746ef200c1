"""Baselines for token classification: each word's most frequent tag, and linear taggers."""

from __future__ import annotations

from bertline.sweep.baselines.base import Baseline, Given
from bertline.sweep.baselines.vectors import tagging_baselines


def baselines(given: Given) -> list[Baseline]:
    """Return each word's most frequent tag and linear taggers; words that train does not have get O."""
    return tagging_baselines(given, lambda counts: 0)
