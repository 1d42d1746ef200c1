"""Baselines for regression: the mean of train, and ridge regression on n-grams and on what a pair shares."""

from __future__ import annotations

import numpy as np

from bertline.sweep.baselines.base import Baseline, BaselineInputs
from bertline.sweep.baselines.linear import RIDGES
from bertline.sweep.baselines.vectors import TextModels, text_baselines


def baselines(inputs: BaselineInputs) -> list[Baseline]:
    """Return the mean of train and ridge regressions on n-grams, on what a pair shares and on an encoder's vectors."""
    mean, config = float(inputs.train.numbers.mean()), inputs.kind.config
    models = TextModels(
        ngrams=RIDGES,
        overlap=RIDGES,
        overlap_and_words=RIDGES,
        vectors=RIDGES,
        titles=("ridge regression", "ridge regression"),
        gold=lambda rows: rows.numbers,
        vector_setting="features",
        finished=lambda numbers, rows: numbers.clip(config.low, config.high),
    )
    constant = inputs.baseline("mean", "mean of train", lambda rows: np.full(len(rows), mean))
    return [constant, *text_baselines(inputs, models)]
