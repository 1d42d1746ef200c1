"""Linear models over any features, with their regularisation: what dev chooses among."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, assert_never

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import ComplementNB
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

Features = Any
"""[N, F], a sparse matrix of scipy or an array."""
Probabilities = Callable[[Features], NDArray[np.float32]]
"""From features [N, F] to [N, labels]."""
_MAX_ITERATIONS = 300
_NEVER = -1e9
_SEED = 0  # of liblinear's order of rows


@dataclass(frozen=True, slots=True)
class LinearModel:
    """A kind of linear model and how strongly it is held back."""

    kind: Literal["linear_svm", "logistic_regression", "complement_naive_bayes"]
    strength: float
    """C, the inverse of the penalty; of naive Bayes, what is added to each count (alpha)."""

    def settings(self) -> dict[str, float | str]:
        """For people."""
        return {"model": self.kind, "alpha" if self.kind == "complement_naive_bayes" else "c": self.strength}


SVMS = tuple(LinearModel("linear_svm", c) for c in (0.1, 0.3, 1.0, 3.0))
NAIVE_BAYES = tuple(LinearModel("complement_naive_bayes", alpha) for alpha in (0.1, 0.5, 1.0))
"""Complement naive Bayes (Rennie et al. 2003) is hard to beat where rows are few and labels many."""
REGRESSIONS = tuple(LinearModel("logistic_regression", c) for c in (0.01, 0.1, 1.0, 10.0))


def of_one_label(model: LinearModel, features: Features, labels: NDArray[np.int64], num_labels: int) -> Probabilities:
    """A model of rows with one label each; a label that train does not have gets 0."""
    known = np.unique(labels)
    if len(known) == 1:
        return lambda found: np.tile(np.eye(num_labels, dtype=np.float32)[known[0]], (found.shape[0], 1))
    fitted = _fitted(model, features, labels)

    def probabilities(found: Features) -> NDArray[np.float32]:
        given = np.zeros((found.shape[0], num_labels), dtype=np.float32)
        given[:, fitted.classes_] = _probabilities(model, fitted, found)
        return given

    return probabilities


def of_many_labels(model: LinearModel, features: Features, labels: NDArray[np.int64]) -> Probabilities:
    """A model for each label of [N, L]; one that all rows of train have, or none, keeps its share."""
    columns = [_of_column(model, features, labels[:, label]) for label in range(labels.shape[1])]
    return lambda found: np.stack([column(found) for column in columns], axis=1).astype(np.float32)


def margins_of(
    model: LinearModel, features: Features, labels: NDArray[np.int64], num_labels: int
) -> Callable[[Features], NDArray[np.float64]]:
    """From features to how far each label is on its side, [N, labels]; one that train does not have is never best."""
    fitted = _fitted(model, features, labels)

    def margins(found: Features) -> NDArray[np.float64]:
        given = np.full((found.shape[0], num_labels), _NEVER)
        if not len(given):
            return given
        with one_thread():
            known = fitted.decision_function(found)
        given[:, fitted.classes_] = np.stack([-known, known], axis=1) if known.ndim == 1 else known
        return given

    return margins


@contextmanager
def one_thread() -> Iterator[None]:
    """Dense sums in one thread: how they are rounded must not depend on the machine's cores."""
    with threadpool_limits(1):
        yield


def _of_column(
    model: LinearModel, features: Features, labels: NDArray[np.int64]
) -> Callable[[Features], NDArray[np.floating]]:
    if labels.min() == labels.max():
        return lambda found: np.full(found.shape[0], float(labels[0]))
    fitted = _fitted(model, features, labels)
    return lambda found: _probabilities(model, fitted, found)[:, 1]


def _fitted(model: LinearModel, features: Features, labels: NDArray[np.int64]) -> Any:
    estimator: Any
    match model.kind:
        case "linear_svm":
            estimator = LinearSVC(C=model.strength, random_state=_SEED)
        case "logistic_regression":
            estimator = LogisticRegression(C=model.strength, max_iter=_MAX_ITERATIONS)
        case "complement_naive_bayes":
            estimator = ComplementNB(alpha=model.strength)
        case _:
            assert_never(model.kind)
    with one_thread(), warnings.catch_warnings():
        # A fit that is cut off is a weaker candidate, and dev sees that.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(features, labels)


def _probabilities(model: LinearModel, fitted: Any, found: Features) -> NDArray[np.floating]:
    """[N, labels that train has]; a support vector machine's margins as they would be under a logistic loss."""
    with one_thread():
        if model.kind != "linear_svm":
            return fitted.predict_proba(found)
        margins = fitted.decision_function(found)
    if margins.ndim == 1:
        positive = expit(2 * margins)
        return np.stack([1 - positive, positive], axis=1)
    return softmax(2 * margins, axis=1)
