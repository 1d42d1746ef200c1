"""Baselines for classification: the most frequent label, and linear models on n-grams and on what a pair shares."""

from __future__ import annotations

import numpy as np

from bertline.kinds.classification.model import MultiLabel
from bertline.sweep.baselines.base import Baseline, BaselineInputs
from bertline.sweep.baselines.linear import NAIVE_BAYES, REGRESSIONS, SVMS, LinearModel
from bertline.sweep.baselines.vectors import MODELS, TextModels, text_baselines

_PAIR_STRENGTHS = (0.1, 1.0)


def majority(inputs: BaselineInputs) -> Baseline:
    """Predict each label's share in train for every row."""
    shares = (inputs.kind.label_counts(inputs.train) / max(len(inputs.train), 1)).astype(np.float32)
    title = "most frequent labels" if isinstance(inputs.kind, MultiLabel) else "most frequent label"
    return inputs.baseline("majority", title, lambda rows: np.tile(shares, (len(rows), 1)))


def baselines(inputs: BaselineInputs) -> list[Baseline]:
    """Return the majority and linear models on n-grams, on what a pair shares and on an encoder's vectors."""
    models = TextModels(
        ngrams=SVMS if isinstance(inputs.kind, MultiLabel) else SVMS + NAIVE_BAYES,
        overlap=REGRESSIONS,
        overlap_and_words=[LinearModel("logistic_regression", c) for c in _PAIR_STRENGTHS],
        vectors=MODELS,
        titles=("linear model", "logistic regression"),
        gold=lambda rows: rows.labels,
    )
    return [majority(inputs), *text_baselines(inputs, models)]
