"""Baselines for classification: the most frequent label, and linear models on n-grams and on what a pair shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack

from bertline.kinds.classification.model import Classification, MultiLabel
from bertline.sweep.baselines.base import Baseline, Given, best_on_dev, predictions_of
from bertline.sweep.baselines.linear import (
    NAIVE_BAYES,
    REGRESSIONS,
    SVMS,
    Features,
    LinearModel,
    Probabilities,
    of_many_labels,
    of_one_label,
)
from bertline.sweep.baselines.text_features import (
    TITLES,
    NgramFeatures,
    PairOverlap,
    Standardised,
    Unit,
    num_rows_read,
    units_of,
)
from bertline.sweep.baselines.vectors import NAMES, linear_baseline
from bertline.tasks.stored_rows import MultiLabelRows, SplitName, TextRows

MOST_PAIRS = 100_000
"""Maximum number of pairs that are read, the first ones of train."""
_PAIR_STRENGTHS = (0.1, 1.0)

Kind = TypeVar("Kind", Classification, MultiLabel)
Rows = TypeVar("Rows", TextRows, MultiLabelRows)


def majority(kind: Kind, train: Rows, dev: Rows, tests: Mapping[SplitName, Rows]) -> Baseline:
    """Predict each label's share in train for every row."""
    shares = kind.label_counts(train) / max(len(train), 1)  # type: ignore[arg-type]
    return Baseline(
        name="majority",
        title="most frequent label" if isinstance(kind, Classification) else "most frequent labels",
        predictions=predictions_of(lambda rows: np.tile(shares.astype(np.float32), (len(rows), 1)), dev, tests),
    )


def ngram_baseline(kind: Kind, unit: Unit, train: Rows, dev: Rows, tests: Mapping[SplitName, Rows]) -> Baseline:
    """Fit the linear model that dev chooses on n-grams of words, of characters or of both."""
    read = train.first(num_rows_read(train, unit))
    features = NgramFeatures(read, unit)
    models = SVMS + NAIVE_BAYES if isinstance(kind, Classification) else SVMS
    fitted = _fitted(models, features(read), read, len(kind.labels))
    dev_features = features(dev)
    best = best_on_dev(kind, dev, models, lambda model: fitted[model](dev_features))
    return Baseline(
        name=f"{unit}_ngrams",
        title=TITLES[unit],
        predictions=predictions_of(lambda rows: fitted[best](features(rows)), dev, tests),
        settings=best.settings(),
    )


def pair_baseline(kind: Kind, train: Rows, dev: Rows, tests: Mapping[SplitName, Rows]) -> Baseline:
    """Fit logistic regression on what two texts share, alone or with the words of each, as dev chooses."""
    read = train.first(MOST_PAIRS)
    words, overlap = NgramFeatures(read, "word"), Standardised(PairOverlap(*_pair(read)), *_pair(read))

    def features(rows: Rows) -> dict[str, Features]:
        shared = overlap(*_pair(rows))
        return {"overlap": shared, "overlap and words": hstack([words(rows), csr_matrix(shared)]).tocsr()}

    train_features, dev_features = features(read), features(dev)
    grids = {
        "overlap": REGRESSIONS,
        "overlap and words": [LinearModel("logistic_regression", c) for c in _PAIR_STRENGTHS],
    }
    fitted = {
        (name, model): probabilities
        for name, models in grids.items()
        for model, probabilities in _fitted(models, train_features[name], read, len(kind.labels)).items()
    }
    best = best_on_dev(kind, dev, fitted, lambda choice: fitted[choice](dev_features[choice[0]]))
    return Baseline(
        name="pair_features",
        title="what the two texts share, logistic regression",
        predictions=predictions_of(lambda rows: fitted[best](features(rows)[best[0]]), dev, tests),
        settings={"features": best[0], **best[1].settings()},
    )


def _fitted(
    models: Sequence[LinearModel], features: Features, train: TextRows | MultiLabelRows, num_labels: int
) -> dict[LinearModel, Probabilities]:
    labels: NDArray[np.int64] = train.labels
    if isinstance(train, MultiLabelRows):
        return {model: of_many_labels(model, features, labels) for model in models}
    return {model: of_one_label(model, features, labels, num_labels) for model in models}


def _pair(rows: TextRows | MultiLabelRows) -> tuple[list[str], list[str]]:
    assert rows.text_pairs is not None
    return rows.texts, rows.text_pairs


def baselines(given: Given) -> list[Baseline]:
    """Return the majority and linear models on n-grams, on what a pair shares and on an encoder's vectors."""
    kind, rows = given.kind, (given.train, given.dev, given.tests)
    made = [majority(kind, *rows), *(ngram_baseline(kind, unit, *rows) for unit in units_of(given.train))]
    if given.train.text_pairs is not None:
        made.append(pair_baseline(kind, *rows))
    if given.encoder is not None:
        made += [linear_baseline(name, given.encoder, kind, *rows) for name in NAMES]
    return made
