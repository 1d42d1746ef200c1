"""Linear models over any features, for rows or for words; dev chooses features, regularisation and threshold."""

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import ComplementNB
from sklearn.svm import LinearSVC

from bertline.baselines.base import Baseline, BaselineInputs
from bertline.linear.features import RowFeatures, WindowFeatures, rows_up_to
from bertline.linear.model import (
    Features,
    LinearKind,
    LinearPredictor,
    LinearWeights,
    one_thread,
    sharpened,
    tags_by_margins,
)
from bertline.tasks.metrics.classification import PROBABILITY_SCORES
from bertline.tasks.stored_rows import TaggedRows

_SEED = 0  # for liblinear's order of rows
_ESTIMATORS: dict[str, Callable[[float], Any]] = {
    "linear_svm": lambda c: LinearSVC(C=c, random_state=_SEED),
    "logistic_regression": lambda c: LogisticRegression(C=c, max_iter=300),
    "complement_naive_bayes": lambda alpha: ComplementNB(alpha=alpha),
    "ridge": lambda penalty: Ridge(alpha=penalty),
}


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Kind of a linear model and its regularisation strength."""

    kind: LinearKind
    strength: float
    """C, the inverse of the penalty; for ridge regression the penalty, for naive Bayes alpha, which is added to each
    count."""

    def settings(self) -> dict[str, float | str]:
        if self.kind == "ridge":
            return {"penalty": self.strength}
        return {"model": self.kind, "alpha" if self.kind == "complement_naive_bayes" else "c": self.strength}

    def fitted(self, features: Features, gold: NDArray[Any], num_labels: int) -> LinearWeights:
        """Fit the model to numbers [N] (ridge), labels [N] or several labels per row [N, L].

        Of several labels per row, each has a model of its own.
        """
        if gold.ndim == 2:
            each = [self.fitted(features, gold[:, label], 2) for label in range(gold.shape[1])]
            intercepts = np.array(
                [one.intercepts[0] if len(one.known) == 2 else np.inf * (2 * one.known[0] - 1) for one in each]
            )
            coefficients = np.concatenate([one.coefficients for one in each])
            return LinearWeights(self.kind, coefficients, intercepts, np.arange(len(each)), len(each), True)
        known = np.zeros(1, dtype=np.int64) if self.kind == "ridge" else np.unique(gold)
        if self.kind != "ridge" and len(known) == 1:
            return LinearWeights(self.kind, np.zeros((1, features.shape[1])), np.zeros(1), known, num_labels)
        with one_thread(), warnings.catch_warnings():
            # A fit that did not converge is a weaker candidate, and dev takes that into account.
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator = _ESTIMATORS[self.kind](self.strength).fit(features, gold)
        if self.kind == "complement_naive_bayes":
            return LinearWeights(self.kind, estimator.feature_log_prob_, np.zeros(1), known, num_labels)
        weights, intercepts = np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)
        return LinearWeights(self.kind, weights, intercepts, known, num_labels)


SVMS = tuple(LinearModel("linear_svm", c) for c in (0.1, 0.3, 1.0, 3.0))
NAIVE_BAYES = tuple(LinearModel("complement_naive_bayes", alpha) for alpha in (0.1, 0.5, 1.0))
"""Complement naive Bayes (Rennie et al. 2003) is hard to beat where rows are few and labels many."""
RIDGES = tuple(LinearModel("ridge", penalty) for penalty in (0.1, 1.0, 10.0, 100.0, 1000.0))
REGRESSIONS = tuple(LinearModel("logistic_regression", c) for c in (0.01, 0.1, 1.0, 10.0))
Grid = Mapping[str, tuple[Callable[[Any], Features], Sequence[LinearModel]]]
"""By name, a function from rows to features, and the models from which dev chooses."""
_SHARPNESSES = tuple(2.0**step for step in (0, 0.5, -0.5, 1, -1, 1.5, -1.5, 2, -2))
"""Powers of a model's probabilities from which dev chooses, nearest to 1 first; dev can be too easy for higher ones."""


def linear_baseline(
    given: BaselineInputs,
    name: str,
    title: str,
    train: tuple[Any, NDArray[Any]],
    grid: Callable[[Any], Grid],
    *,
    setting: str = "features",
    finished: Callable[[NDArray[Any], Any], Any] | None = None,
) -> Baseline:
    """Fit linear models, and take the features and the model that score best on dev.

    For a metric that reads probabilities, dev also chooses how sharp those of each model are (temperature scaling, Guo
    et al. 2017, arXiv 1706.04599, section 4.2); the sigmoid of an SVM's margin means little by itself.

    Args:
        train: Rows to fit on, and what to predict for their features: labels [N], several labels [N, L], or numbers [N]
            for ridge regression. Labels of a task without labels are 0 and 1.
        grid: Returns for train rows, by name, functions from rows to features, and the models to fit to them; the name
            may be empty.
        finished: Makes predictions of the probabilities or numbers of some rows.
    """
    rows, gold = train
    features, num_labels = grid(rows), len(given.kind.labels) or 2
    fitted = _fitted(features, rows, gold, num_labels)
    on_dev = {} if given.folds else _on_rows(features, fitted, given.dev)
    for learned, predicted_rows in given.folds:
        learned = learned[learned < len(rows)]
        features_of_fold = grid(rows.take(learned))
        of_fold = _fitted(features_of_fold, rows.take(learned), gold[learned], num_labels)
        for choice, values in _on_rows(features_of_fold, of_fold, given.dev.take(predicted_rows)).items():
            of_all = on_dev.setdefault(choice, np.zeros((len(given.dev), *values.shape[1:]), values.dtype))
            of_all[predicted_rows] = values
    powers = _SHARPNESSES if given.kind.config.metric in PROBABILITY_SCORES else (1.0,)

    def predicted(choice: tuple[tuple[str, LinearModel], float]) -> Any:
        values = sharpened(on_dev[choice[0]], choice[1])
        return values if finished is None else finished(values, given.dev)

    (option, model), power = given.best(itertools.product(fitted, powers), predicted)
    predictor = LinearPredictor(features[option][0], fitted[option, model], power, finished)
    settings = {
        **({setting: option} if option else {}),
        **model.settings(),
        **({"sharpness": power} if len(powers) > 1 else {}),
    }
    baseline = given.baseline(name, title, predictor, settings)
    if given.folds:
        baseline.predictions["dev"] = predicted(((option, model), power))

    def refitted(places: NDArray[np.int64]) -> LinearPredictor:
        places = places[places < len(rows)]
        some = rows.take(places)
        compute = grid(some)[option][0]
        return replace(predictor, features=compute, weights=model.fitted(compute(some), gold[places], num_labels))

    return replace(baseline, refitted=refitted if len(rows) == len(given.train) else None)


def _fitted(grid: Grid, rows: Any, gold: NDArray[Any], num_labels: int) -> dict[tuple[str, LinearModel], LinearWeights]:
    fitted: dict[tuple[str, LinearModel], LinearWeights] = {}
    for option, (compute, models) in grid.items():
        features = compute(rows)  # shared by its models, which a scikit-learn pipeline for each would compute again
        fitted |= {(option, model): model.fitted(features, gold, num_labels) for model in models}
    return fitted


def _on_rows(
    grid: Grid, fitted: Mapping[tuple[str, LinearModel], LinearWeights], rows: Any
) -> dict[tuple[str, LinearModel], NDArray[Any]]:
    features = {option: compute(rows) for option, (compute, _) in grid.items()}
    return {choice: weights(features[choice[0]]) for choice, weights in fitted.items()}


def tagged_by(
    given: BaselineInputs,
    name: str,
    title: str,
    features: RowFeatures | Callable[[Sequence[TaggedRows]], Sequence[Features]],
    models: Sequence[LinearModel],
    thresholds: Sequence[float],
    *,
    most_words: int,
) -> list[Baseline]:
    """Tag each word independently, with the model and the threshold that score best on dev.

    Args:
        features: Features of all words of some rows, [W, F]; or a function from train, dev and the tests, in this
            order, to those of each.
        thresholds: Values to subtract from the margin of O: above 0, more entities are predicted. Among equals, the one
            nearest to 0.
        most_words: Maximum number of words of train that are read, in whole sentences from the first on.

    Returns:
        One baseline; an empty list if all words of train have the same tag.
    """
    kind, dev, tests = given.kind, given.dev, given.tests
    train = rows_up_to(given.train, [len(words) for words in given.train.words], most_words)
    gold = np.concatenate(kind.gold(train))
    if len(np.unique(gold)) < 2:
        return []
    several = [train, dev, *tests.values()]
    of_train, of_dev, *of_tests = map(features, several) if isinstance(features, RowFeatures) else features(several)
    nearest_first = sorted(thresholds, key=lambda value: (abs(value), value))
    fitted = {model: model.fitted(of_train, gold, len(kind.labels)) for model in models}
    on_dev = {model: weights.margins(of_dev) for model, weights in fitted.items()}
    model, threshold = given.best(
        itertools.product(models, nearest_first), lambda choice: tags_by_margins(dev, on_dev[choice[0]], choice[1])
    )
    predictions = {
        split: tags_by_margins(rows, fitted[model].margins(found), threshold)
        for (split, rows), found in zip(given.scored.items(), [of_dev, *of_tests], strict=True)
    }
    settings = {**model.settings(), **({"threshold": threshold} if len(thresholds) > 1 else {})}
    save = None
    if isinstance(features, RowFeatures):
        save = partial(LinearPredictor(features, fitted[model], threshold=threshold).save, title=title)
    return [Baseline(name=name, title=title, predictions=predictions, settings=settings, save=save)]


_MOST_WORDS = 400_000
_MODELS = tuple(LinearModel("linear_svm", c) for c in (0.01, 0.03, 0.1, 0.3))
_THRESHOLDS = tuple(step / 20 for step in range(-12, 25))


def window_tagger(given: BaselineInputs, *, thresholds: Sequence[float] = _THRESHOLDS) -> list[Baseline]:
    """Fit a linear SVM on the word, its affixes and shape, its neighbours and properties of the sentence."""
    title = "linear tagger over a window of words"
    return tagged_by(given, "window_tagger", title, WindowFeatures(), _MODELS, thresholds, most_words=_MOST_WORDS)
