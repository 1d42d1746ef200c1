"""Baselines of classification: always the most frequent label, and TF-IDF with logistic regression."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from bertline.finetuning.kinds.classification import Classification
from bertline.sweep.baselines.base import Baseline
from bertline.tasks.storage import SplitName
from bertline.tasks.stored_rows import TextRows

REGULARISATION = (0.1, 1.0, 10.0, 100.0)
"""Values of C (the inverse strength of the penalty) among which dev chooses."""
_MAX_ITERATIONS = 1000


def classification_baselines(
    kind: Classification, train: TextRows, dev: TextRows, tests: Mapping[SplitName, TextRows]
) -> list[Baseline]:
    """Majority, and TF-IDF of words and word pairs; of a pair, each text has its own words."""
    return [_majority(kind, train, {"dev": dev, **tests}), _tfidf(kind, train, {"dev": dev, **tests})]


def _majority(kind: Classification, train: TextRows, scored: Mapping[SplitName, TextRows]) -> Baseline:
    shares = kind.label_counts(train) / max(len(train), 1)
    return Baseline(
        name="majority",
        title="most frequent label",
        predictions={split: np.tile(shares.astype(np.float32), (len(rows), 1)) for split, rows in scored.items()},
    )


def _tfidf(kind: Classification, train: TextRows, scored: Mapping[SplitName, TextRows]) -> Baseline:
    vectorizers = _fitted(train)
    train_features = _features(vectorizers, train)
    dev = scored["dev"]
    dev_features = _features(vectorizers, dev)

    def trained(c: float) -> LogisticRegression:
        return LogisticRegression(C=c, max_iter=_MAX_ITERATIONS).fit(train_features, train.labels)

    models = {c: trained(c) for c in REGULARISATION}

    def dev_score(c: float) -> float:
        predictions = _probabilities(kind, models[c], dev_features)
        return kind.scores(kind.statistics(dev, predictions, {}))[kind.config.metric]

    best = max(REGULARISATION, key=dev_score)
    return Baseline(
        name="tfidf_logistic_regression",
        title="TF-IDF, logistic regression",
        predictions={
            split: _probabilities(kind, models[best], _features(vectorizers, rows)) for split, rows in scored.items()
        },
        settings={"c": best},
    )


def _probabilities(kind: Classification, model: LogisticRegression, features: csr_matrix) -> NDArray[np.float32]:
    """[N, labels]; labels that train did not have get 0."""
    probabilities = np.zeros((features.shape[0], len(kind.labels)), dtype=np.float32)
    probabilities[:, model.classes_] = model.predict_proba(features)
    return probabilities


def _texts(rows: TextRows) -> list[list[str]]:
    return [rows.texts] if rows.text_pairs is None else [rows.texts, rows.text_pairs]


def _fitted(rows: TextRows) -> list[TfidfVectorizer]:
    # \w+ keeps words of one letter; identifiers are cut at underscores and dots, as the encoder's tokenizer does.
    return [
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"[^\W_]+").fit(texts)
        for texts in _texts(rows)
    ]


def _features(vectorizers: list[TfidfVectorizer], rows: TextRows) -> csr_matrix:
    return hstack([v.transform(texts) for v, texts in zip(vectorizers, _texts(rows), strict=True)]).tocsr()
