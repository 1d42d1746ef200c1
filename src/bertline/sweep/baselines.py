"""What an encoder has to beat: always the most frequent label, and TF-IDF with logistic regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from bertline.tasks.metrics import MetricName, score
from bertline.tasks.storage import Rows

REGULARISATION = (0.1, 1.0, 10.0, 100.0)
"""Values of C (the inverse strength of the penalty) among which dev chooses."""
_MAX_ITERATIONS = 1000


@dataclass(frozen=True, slots=True)
class BaselineScores:
    """Scores of one baseline, and the C that dev chose."""

    dev: float
    test: float
    c: float | None = None


def majority_scores(train: Rows, dev: Rows, test: Rows, *, metric: MetricName, num_labels: int) -> BaselineScores:
    """Always the label that is most frequent in train."""
    label = int(np.bincount(train.labels, minlength=num_labels).argmax())
    dev_score, test_score = (score(metric, rows.labels, np.full(len(rows), label), num_labels) for rows in (dev, test))
    return BaselineScores(dev_score, test_score)


def tfidf_scores(
    train: Rows,
    dev: Rows,
    test: Rows,
    *,
    metric: MetricName,
    num_labels: int,
    choices_of_c: tuple[float, ...] = REGULARISATION,
) -> BaselineScores:
    """Logistic regression on TF-IDF of words and word pairs, C chosen on dev; of a pair, each text has its own words.

    Deterministic: it has no seeds and no spread.
    """
    vectorizers = _fitted(train)
    train_features, dev_features = _features(vectorizers, train), _features(vectorizers, dev)

    def trained(c: float) -> LogisticRegression:
        return LogisticRegression(C=c, max_iter=_MAX_ITERATIONS).fit(train_features, train.labels)

    models = {c: trained(c) for c in choices_of_c}
    dev_scores = {c: score(metric, dev.labels, model.predict(dev_features), num_labels) for c, model in models.items()}
    best = max(choices_of_c, key=lambda c: dev_scores[c])
    predicted: NDArray[np.int64] = models[best].predict(_features(vectorizers, test))
    return BaselineScores(dev_scores[best], score(metric, test.labels, predicted, num_labels), best)


def _texts(rows: Rows) -> list[list[str]]:
    return [rows.texts] if rows.text_pairs is None else [rows.texts, rows.text_pairs]


def _fitted(rows: Rows) -> list[TfidfVectorizer]:
    # \w+ keeps words of one letter; identifiers are cut at underscores and dots, as the encoder's tokenizer does.
    return [
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"[^\W_]+").fit(texts)
        for texts in _texts(rows)
    ]


def _features(vectorizers: list[TfidfVectorizer], rows: Rows) -> csr_matrix:
    return hstack([v.transform(texts) for v, texts in zip(vectorizers, _texts(rows), strict=True)]).tocsr()
