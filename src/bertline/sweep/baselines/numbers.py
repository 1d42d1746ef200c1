"""Baselines of regression: always the mean of train, and ridge regression on TF-IDF."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import Ridge

from bertline.finetuning.kinds.regression import Regression
from bertline.sweep.baselines.base import Baseline
from bertline.sweep.baselines.tfidf import TfidfCosine, TfidfFeatures
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import NumberRows

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Strengths of the penalty among which dev chooses."""
# The one column that says how alike two texts are stands against thousands of words: so much larger, the penalty
# hardly holds it back.
_COSINE_WEIGHT = 10.0


def regression_baselines(
    kind: Regression, train: NumberRows, dev: NumberRows, tests: Mapping[SplitName, NumberRows]
) -> list[Baseline]:
    """The mean, and ridge on words and word pairs; for pairs, with the cosine of the texts' TF-IDF vectors."""
    scored = {"dev": dev, **tests}
    return [_mean(train, scored), _ridge(kind, train, scored)]


def _mean(train: NumberRows, scored: Mapping[SplitName, NumberRows]) -> Baseline:
    mean = float(train.numbers.mean())
    return Baseline(
        name="mean",
        title="mean of train",
        predictions={split: np.full(len(rows), mean) for split, rows in scored.items()},
    )


def _ridge(kind: Regression, train: NumberRows, scored: Mapping[SplitName, NumberRows]) -> Baseline:
    words = TfidfFeatures(train)
    cosine = None if train.text_pairs is None else TfidfCosine(train)

    def features(rows: NumberRows) -> csr_matrix:
        if cosine is None:
            return words(rows)
        return hstack([words(rows), csr_matrix(_COSINE_WEIGHT * cosine(rows)[:, None])]).tocsr()

    train_features, dev_features = features(train), features(scored["dev"])
    models = {penalty: Ridge(alpha=penalty).fit(train_features, train.numbers) for penalty in PENALTIES}

    def predictions(penalty: float, found: csr_matrix) -> NDArray[np.float64]:
        return models[penalty].predict(found).clip(kind.config.low, kind.config.high)

    def dev_score(penalty: float) -> float:
        statistics = kind.statistics(scored["dev"], predictions(penalty, dev_features), {})
        return kind.scores(statistics)[kind.config.metric]

    best = max(PENALTIES, key=dev_score)
    return Baseline(
        name="tfidf_ridge",
        title="TF-IDF, ridge regression" if cosine is None else "TF-IDF and its cosine, ridge regression",
        predictions={split: predictions(best, features(rows)) for split, rows in scored.items()},
        settings={"penalty": best},
    )
