"""Baselines for regression: the mean of train, and ridge regression on n-grams and on what a pair shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import Ridge

from bertline.kinds.regression.model import Regression
from bertline.sweep.baselines.base import Baseline, Given, best_on_dev
from bertline.sweep.baselines.encoder_vectors import FrozenEncoder
from bertline.sweep.baselines.linear import Features, one_thread
from bertline.sweep.baselines.ngrams import NgramFeatures, Unit, num_rows_read, units_of
from bertline.sweep.baselines.overlap import PairOverlap, Standardised
from bertline.sweep.baselines.vectors import MOST_ROWS, NAMES, TITLES, Name, text_features
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import NumberRows

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Strengths of the penalty from which dev chooses."""
_MOST_PAIRS = 100_000
_TITLES: dict[Unit, str] = {
    "word": "word n-grams, ridge regression",
    "char": "character n-grams, ridge regression",
    "word_and_char": "word and character n-grams, ridge regression",
}


def mean_baseline(train: NumberRows, dev: NumberRows, tests: Mapping[SplitName, NumberRows]) -> Baseline:
    """Predict the mean of train for every row."""
    mean = float(train.numbers.mean())
    return Baseline(
        name="mean",
        title="mean of train",
        predictions={split: np.full(len(rows), mean) for split, rows in {"dev": dev, **tests}.items()},
    )


def ngram_ridge(
    kind: Regression, unit: Unit, train: NumberRows, dev: NumberRows, tests: Mapping[SplitName, NumberRows]
) -> Baseline:
    """Fit ridge regression on n-grams."""
    read = train.first(num_rows_read(train, unit))
    features = NgramFeatures(read, unit)
    return ridge(kind, f"{unit}_ngrams", _TITLES[unit], read, dev, tests, {"": features})


def pair_ridge(kind: Regression, train: NumberRows, dev: NumberRows, tests: Mapping[SplitName, NumberRows]) -> Baseline:
    """Fit ridge regression on what two texts share, alone or together with the words of each."""
    read = train.first(_MOST_PAIRS)
    words, overlap = NgramFeatures(read, "word"), Standardised(PairOverlap(*_pair(read)), *_pair(read))

    def with_words(rows: NumberRows) -> csr_matrix:
        return hstack([words(rows), csr_matrix(overlap(*_pair(rows)))]).tocsr()

    features: dict[str, Callable[[NumberRows], Features]] = {
        "overlap": lambda rows: overlap(*_pair(rows)),
        "overlap and words": with_words,
    }
    title = "what the two texts share, ridge regression"
    return ridge(kind, "pair_features", title, read, dev, tests, features)


def ridge(
    kind: Regression,
    name: str,
    title: str,
    train: NumberRows,
    dev: NumberRows,
    tests: Mapping[SplitName, NumberRows],
    features: Mapping[str, Callable[[NumberRows], Features]],
) -> Baseline:
    """Fit ridge regression with the features and the penalty that dev chooses."""
    models, of_dev = {}, {}
    for kind_of_features, compute in features.items():
        found, of_dev[kind_of_features] = compute(train), compute(dev)
        for penalty in PENALTIES:
            with one_thread():
                models[kind_of_features, penalty] = Ridge(alpha=penalty).fit(found, train.numbers)

    def predictions(choice: tuple[str, float], found: Features) -> NDArray[np.float64]:
        with one_thread():
            return models[choice].predict(found).clip(kind.config.low, kind.config.high)

    best = best_on_dev(kind, dev, models, lambda choice: predictions(choice, of_dev[choice[0]]))
    return Baseline(
        name=name,
        title=title,
        predictions={
            split: predictions(best, features[best[0]](rows)) for split, rows in {"dev": dev, **tests}.items()
        },
        settings={**({"features": best[0]} if best[0] else {}), "penalty": best[1]},
    )


def _pair(rows: NumberRows) -> tuple[list[str], list[str]]:
    assert rows.text_pairs is not None
    return rows.texts, rows.text_pairs


def vector_ridge(
    name: Name,
    encoder: FrozenEncoder,
    kind: Regression,
    train: NumberRows,
    dev: NumberRows,
    tests: Mapping[SplitName, NumberRows],
) -> Baseline:
    """Fit ridge regression on an encoder's vectors of the texts."""
    read = train.first(MOST_ROWS[name])
    title = f"{TITLES[name][1]}, ridge regression"
    return ridge(kind, name, title, read, dev, tests, text_features(name, encoder, read))


def baselines(given: Given) -> list[Baseline]:
    """Return the mean of train and ridge regressions on n-grams, on what a pair shares and on an encoder's vectors."""
    kind, rows = given.kind, (given.train, given.dev, given.tests)
    made = [mean_baseline(*rows), *(ngram_ridge(kind, unit, *rows) for unit in units_of(given.train))]
    if given.train.text_pairs is not None:
        made.append(pair_ridge(kind, *rows))
    if given.encoder is not None:
        made += [vector_ridge(name, given.encoder, kind, *rows) for name in NAMES]
    return made
