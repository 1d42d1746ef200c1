"""Baselines for token classification: each word's most frequent tag, and linear taggers."""

from __future__ import annotations

from bertline.sweep.baselines.base import Baseline, BaselineInputs
from bertline.sweep.baselines.vectors import tagging_baselines


def baselines(inputs: BaselineInputs) -> list[Baseline]:
    """Return each word's most frequent tag and linear taggers; words that train does not have get O."""
    return tagging_baselines(inputs, lambda counts: 0)
