"""Baselines of classification: always the most frequent label, and TF-IDF with logistic regression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from bertline.finetuning.kinds.classification import Classification
from bertline.finetuning.kinds.multi_label import MultiLabel
from bertline.sweep.baselines.base import Baseline
from bertline.sweep.baselines.tfidf import TfidfFeatures
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import MultiLabelRows, TextRows

REGULARISATION = (0.1, 1.0, 10.0, 100.0)
"""Values of C (the inverse strength of the penalty) among which dev chooses."""
_MAX_ITERATIONS = 1000

Kind = TypeVar("Kind", Classification, MultiLabel)
Rows = TypeVar("Rows", TextRows, MultiLabelRows)
Probabilities = Callable[[csr_matrix], NDArray[np.float32]]
"""From features [N, words] to [N, labels]."""


def classification_baselines(
    kind: Classification, train: TextRows, dev: TextRows, tests: Mapping[SplitName, TextRows]
) -> list[Baseline]:
    """Majority, and TF-IDF of words and word pairs; of a pair, each text has its own words."""

    def trained(c: float, features: csr_matrix) -> Probabilities:
        model = LogisticRegression(C=c, max_iter=_MAX_ITERATIONS).fit(features, train.labels)

        def probabilities(found: csr_matrix) -> NDArray[np.float32]:
            # Labels that train did not have get 0.
            given = np.zeros((found.shape[0], len(kind.labels)), dtype=np.float32)
            given[:, model.classes_] = model.predict_proba(found)
            return given

        return probabilities

    scored = {"dev": dev, **tests}
    return [_majority(kind, train, scored, "most frequent label"), _tfidf(kind, train, scored, trained)]


def multi_label_baselines(
    kind: MultiLabel, train: MultiLabelRows, dev: MultiLabelRows, tests: Mapping[SplitName, MultiLabelRows]
) -> list[Baseline]:
    """The same for several labels a row: each label's share in train, and one logistic regression for each label.

    As with the encoder, dev decides from which probability on a label is given.
    """

    def trained(c: float, features: csr_matrix) -> Probabilities:
        models = [_of_one_label(c, features, train.labels[:, label]) for label in range(len(kind.labels))]
        return lambda found: np.stack([probability(found) for probability in models], axis=1).astype(np.float32)

    scored = {"dev": dev, **tests}
    return [_majority(kind, train, scored, "most frequent labels"), _tfidf(kind, train, scored, trained)]


def _of_one_label(
    c: float, features: csr_matrix, labels: NDArray[np.int64]
) -> Callable[[csr_matrix], NDArray[np.floating]]:
    """Of one label by itself; one that all rows of train have, or none, keeps its share."""
    if labels.min() == labels.max():
        return lambda found: np.full(found.shape[0], float(labels[0]))
    model = LogisticRegression(C=c, max_iter=_MAX_ITERATIONS).fit(features, labels)
    return lambda found: model.predict_proba(found)[:, 1]


def _majority(kind: Kind, train: Rows, scored: Mapping[SplitName, Rows], title: str) -> Baseline:
    shares = kind.label_counts(train) / max(len(train), 1)  # type: ignore[arg-type]
    return Baseline(
        name="majority",
        title=title,
        predictions={split: np.tile(shares.astype(np.float32), (len(rows), 1)) for split, rows in scored.items()},
    )


def _tfidf(
    kind: Kind, train: Rows, scored: Mapping[SplitName, Rows], trained: Callable[[float, csr_matrix], Probabilities]
) -> Baseline:
    features = TfidfFeatures(train)
    train_features, dev_features = features(train), features(scored["dev"])
    models = {c: trained(c, train_features) for c in REGULARISATION}
    dev = scored["dev"]

    def dev_score(c: float) -> float:
        predictions = models[c](dev_features)
        calibration = kind.calibrate(dev, predictions)  # type: ignore[arg-type]
        return kind.scores(kind.statistics(dev, predictions, calibration))[kind.config.metric]  # type: ignore[arg-type]

    best = max(REGULARISATION, key=dev_score)
    return Baseline(
        name="tfidf_logistic_regression",
        title="TF-IDF, logistic regression",
        predictions={split: models[best](features(rows)) for split, rows in scored.items()},
        settings={"c": best},
    )
