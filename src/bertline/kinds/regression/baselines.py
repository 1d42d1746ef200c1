"""Baselines for regression: the mean of train, and ridge regression on n-grams and on what a pair shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import Ridge

from bertline.kinds.regression.model import Regression
from bertline.sweep.baselines.base import Baseline, Given, best_on_dev, predictions_of
from bertline.sweep.baselines.encoder_vectors import FrozenEncoder
from bertline.sweep.baselines.linear import Features, one_thread
from bertline.sweep.baselines.text_features import (
    NgramFeatures,
    PairOverlap,
    Standardised,
    Unit,
    num_rows_read,
    units_of,
)
from bertline.sweep.baselines.vectors import MOST_ROWS, NAMES, TITLES, Name, text_features
from bertline.tasks.stored_rows import NumberRows

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Strengths of the penalty from which dev chooses."""
_MOST_PAIRS = 100_000
_TITLES: dict[Unit, str] = {
    "word": "word n-grams, ridge regression",
    "char": "character n-grams, ridge regression",
    "word_and_char": "word and character n-grams, ridge regression",
}


def _mean(given: Given) -> Baseline:
    """Predict the mean of train for every row."""
    mean = float(given.train.numbers.mean())
    return Baseline(
        name="mean",
        title="mean of train",
        predictions=predictions_of(lambda rows: np.full(len(rows), mean), given.dev, given.tests),
    )


def _on_ngrams(given: Given, unit: Unit) -> Baseline:
    """Fit ridge regression on n-grams."""
    read = given.train.first(num_rows_read(given.train, unit))
    return _ridge(given, f"{unit}_ngrams", _TITLES[unit], read, {"": NgramFeatures(read, unit)})


def _on_pairs(given: Given) -> Baseline:
    """Fit ridge regression on what two texts share, alone or together with the words of each."""
    read = given.train.first(_MOST_PAIRS)
    words, overlap = NgramFeatures(read, "word"), Standardised(PairOverlap(*_pair(read)), *_pair(read))

    def with_words(rows: NumberRows) -> csr_matrix:
        return hstack([words(rows), csr_matrix(overlap(*_pair(rows)))]).tocsr()

    features: dict[str, Callable[[NumberRows], Features]] = {
        "overlap": lambda rows: overlap(*_pair(rows)),
        "overlap and words": with_words,
    }
    return _ridge(given, "pair_features", "what the two texts share, ridge regression", read, features)


def _ridge(
    given: Given, name: str, title: str, train: NumberRows, features: Mapping[str, Callable[[NumberRows], Features]]
) -> Baseline:
    """Fit ridge regression with the features and the penalty that dev chooses."""
    kind: Regression = given.kind
    models, of_dev = {}, {}
    for kind_of_features, compute in features.items():
        found, of_dev[kind_of_features] = compute(train), compute(given.dev)
        for penalty in PENALTIES:
            with one_thread():
                models[kind_of_features, penalty] = Ridge(alpha=penalty).fit(found, train.numbers)

    def predictions(choice: tuple[str, float], found: Features) -> NDArray[np.float64]:
        with one_thread():
            return models[choice].predict(found).clip(kind.config.low, kind.config.high)

    best = best_on_dev(kind, given.dev, models, lambda choice: predictions(choice, of_dev[choice[0]]))
    return Baseline(
        name=name,
        title=title,
        predictions=predictions_of(lambda rows: predictions(best, features[best[0]](rows)), given.dev, given.tests),
        settings={**({"features": best[0]} if best[0] else {}), "penalty": best[1]},
    )


def _pair(rows: NumberRows) -> tuple[list[str], list[str]]:
    assert rows.text_pairs is not None
    return rows.texts, rows.text_pairs


def _on_vectors(given: Given, encoder: FrozenEncoder, name: Name) -> Baseline:
    """Fit ridge regression on an encoder's vectors of the texts."""
    read = given.train.first(MOST_ROWS[name])
    return _ridge(given, name, f"{TITLES[name][1]}, ridge regression", read, text_features(name, encoder, read))


def baselines(given: Given) -> list[Baseline]:
    """Return the mean of train and ridge regressions on n-grams, on what a pair shares and on an encoder's vectors."""
    made = [_mean(given), *(_on_ngrams(given, unit) for unit in units_of(given.train))]
    if given.train.text_pairs is not None:
        made.append(_on_pairs(given))
    if given.encoder is not None:
        made += [_on_vectors(given, given.encoder, name) for name in NAMES]
    return made
