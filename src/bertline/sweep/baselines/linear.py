"""Linear models over any features, and the regularisation strengths from which dev chooses."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, assert_never

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import ComplementNB
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from bertline.sweep.baselines.base import Baseline, BaselineInputs

Features = Any
"""Features [N, F], as a SciPy sparse matrix or an array."""
Probabilities = Callable[[Features], NDArray[np.float32]]
"""Function from features [N, F] to probabilities [N, labels]."""
_MAX_ITERATIONS = 300
_NEVER = -1e9
_SEED = 0  # for liblinear's order of rows


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Kind of a linear model and its regularisation strength."""

    kind: Literal["linear_svm", "logistic_regression", "complement_naive_bayes", "ridge"]
    strength: float
    """C, the inverse of the penalty; for ridge regression the penalty, for naive Bayes alpha, which is added to each
    count."""

    def settings(self) -> dict[str, float | str]:
        """Return the settings for display."""
        if self.kind == "ridge":
            return {"penalty": self.strength}
        return {"model": self.kind, "alpha" if self.kind == "complement_naive_bayes" else "c": self.strength}


SVMS = tuple(LinearModel("linear_svm", c) for c in (0.1, 0.3, 1.0, 3.0))
NAIVE_BAYES = tuple(LinearModel("complement_naive_bayes", alpha) for alpha in (0.1, 0.5, 1.0))
"""Complement naive Bayes (Rennie et al. 2003) is hard to beat where rows are few and labels many."""
RIDGES = tuple(LinearModel("ridge", penalty) for penalty in (0.1, 1.0, 10.0, 100.0, 1000.0))
REGRESSIONS = tuple(LinearModel("logistic_regression", c) for c in (0.01, 0.1, 1.0, 10.0))


def linear_baseline(
    given: BaselineInputs,
    name: str,
    title: str,
    train: tuple[Any, NDArray[Any]],
    grid: Mapping[str, tuple[Callable[[Any], Features], Sequence[LinearModel]]],
    *,
    setting: str = "features",
    finished: Callable[[NDArray[Any], Any], Any] = lambda values, rows: values,
) -> Baseline:
    """Fit linear models, and take the features and the model that score best on dev.

    Args:
        train: Rows to fit on, and what to predict for their features: labels [N], several labels [N, L], or numbers [N]
            for ridge regression. Labels of a task without labels are 0 and 1.
        grid: By name, functions from rows to features, and the models to fit to them; the name may be empty.
        finished: Makes predictions of the probabilities or numbers of some rows.
    """
    rows, gold = train
    num_labels = len(given.kind.labels) or 2
    fitted: dict[tuple[str, LinearModel], Callable[[Features], NDArray[Any]]] = {}
    for option, (compute, models) in grid.items():
        found = compute(rows)
        for model in models:
            if model.kind == "ridge":
                fitted[option, model] = _numbers_of(model, found, gold)
            elif gold.ndim == 2:
                fitted[option, model] = of_many_labels(model, found, gold)
            else:
                fitted[option, model] = of_one_label(model, found, gold, num_labels)
    of_dev = {option: compute(given.dev) for option, (compute, _) in grid.items()}
    best = given.best(fitted, lambda choice: finished(fitted[choice](of_dev[choice[0]]), given.dev))
    option, model = best
    return given.baseline(
        name,
        title,
        lambda rows: finished(fitted[best](grid[option][0](rows)), rows),
        {**({setting: option} if option else {}), **model.settings()},
    )


def split_by_row(values: NDArray[Any], lengths: Sequence[int]) -> list[NDArray[Any]]:
    """Return the values [T, ...] of each row; row n has lengths[n] of them."""
    return np.split(values, np.cumsum(lengths))[: len(lengths)]


def _numbers_of(
    model: LinearModel, features: Features, numbers: NDArray[np.float64]
) -> Callable[[Features], NDArray[np.float64]]:
    fitted = _fitted(model, features, numbers)

    def predicted(found: Features) -> NDArray[np.float64]:
        with one_thread():
            return fitted.predict(found)

    return predicted


def of_one_label(model: LinearModel, features: Features, labels: NDArray[np.int64], num_labels: int) -> Probabilities:
    """Fit a model to rows with one label each; labels that train does not have get probability 0."""
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
    """Fit one model per label to labels [N, L]; a label that all rows of train have, or none, always gets 1 or 0."""
    columns = [_of_column(model, features, labels[:, label]) for label in range(labels.shape[1])]
    return lambda found: np.stack([column(found) for column in columns], axis=1).astype(np.float32)


def margins_of(
    model: LinearModel, features: Features, labels: NDArray[np.int64], num_labels: int
) -> Callable[[Features], NDArray[np.float64]]:
    """Return a function from features to margins [N, labels]; a label that train does not have is never the best."""
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
    """Compute dense sums in one thread, so that their rounding does not depend on the machine's cores."""
    with threadpool_limits(1):
        yield


def _of_column(
    model: LinearModel, features: Features, labels: NDArray[np.int64]
) -> Callable[[Features], NDArray[np.floating]]:
    if labels.min() == labels.max():
        return lambda found: np.full(found.shape[0], float(labels[0]))
    fitted = _fitted(model, features, labels)
    return lambda found: _probabilities(model, fitted, found)[:, 1]


def _fitted(model: LinearModel, features: Features, labels: NDArray[Any]) -> Any:
    estimator: Any
    match model.kind:
        case "linear_svm":
            estimator = LinearSVC(C=model.strength, random_state=_SEED)
        case "logistic_regression":
            estimator = LogisticRegression(C=model.strength, max_iter=_MAX_ITERATIONS)
        case "complement_naive_bayes":
            estimator = ComplementNB(alpha=model.strength)
        case "ridge":
            estimator = Ridge(alpha=model.strength)
        case _:
            assert_never(model.kind)
    with one_thread(), warnings.catch_warnings():
        # A fit that did not converge is a weaker candidate, and dev takes that into account.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(features, labels)


def _probabilities(model: LinearModel, fitted: Any, found: Features) -> NDArray[np.floating]:
    """Return probabilities [N, labels that train has]; for an SVM, the sigmoid or softmax of twice its margins."""
    with one_thread():
        if model.kind != "linear_svm":
            return fitted.predict_proba(found)
        margins = fitted.decision_function(found)
    if margins.ndim == 1:
        positive = expit(2 * margins)
        return np.stack([1 - positive, positive], axis=1)
    return softmax(2 * margins, axis=1)
