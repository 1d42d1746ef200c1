"""Linear models over any features, for rows or for words; dev chooses features, regularisation and threshold."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import ComplementNB
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from bertline.kinds.tagging import TagPredictions
from bertline.sweep.baselines.base import Baseline, BaselineInputs, dev_score
from bertline.tasks.metrics.classification import PROBABILITY_SCORES
from bertline.tasks.stored_rows import TaggedRows

Features = Any
"""Features [N, F], as a SciPy sparse matrix or an array."""
_NEVER = -1e9
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

    kind: Literal["linear_svm", "logistic_regression", "complement_naive_bayes", "ridge"]
    strength: float
    """C, the inverse of the penalty; for ridge regression the penalty, for naive Bayes alpha, which is added to each
    count."""

    def settings(self) -> dict[str, float | str]:
        """Return the settings for display."""
        if self.kind == "ridge":
            return {"penalty": self.strength}
        return {"model": self.kind, "alpha" if self.kind == "complement_naive_bayes" else "c": self.strength}

    def fitted(self, features: Features, gold: NDArray[Any]) -> Any:
        """Return a fitted scikit-learn estimator."""
        with one_thread(), warnings.catch_warnings():
            # A fit that did not converge is a weaker candidate, and dev takes that into account.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return _ESTIMATORS[self.kind](self.strength).fit(features, gold)

    def predictor(
        self, features: Features, gold: NDArray[Any], num_labels: int
    ) -> Callable[[Features], NDArray[np.floating]]:
        """Fit the model; return a function from features to numbers [N] (ridge) or probabilities [N, labels].

        Of several labels per row, each has a model of its own. A label that train does not have gets probability 0.
        """
        if self.kind == "ridge":
            ridge = self.fitted(features, gold)
            return lambda found: _one_threaded(ridge.predict, found)
        if gold.ndim == 2:
            of_labels = [self.predictor(features, gold[:, label], 2) for label in range(gold.shape[1])]
            return lambda found: np.stack([of_label(found)[:, 1] for of_label in of_labels], axis=1)
        if len(known := np.unique(gold)) == 1:
            return lambda found: np.tile(np.eye(num_labels, dtype=np.float32)[known[0]], (found.shape[0], 1))
        classifier = self.fitted(features, gold)

        def probabilities(found: Features) -> NDArray[np.float32]:
            """Return the sigmoid or softmax of twice the margins of an SVM, which gives no probabilities."""
            all_labels = np.zeros((found.shape[0], num_labels), dtype=np.float32)
            if not isinstance(classifier, LinearSVC):
                all_labels[:, known] = _one_threaded(classifier.predict_proba, found)
            elif (margins := _one_threaded(classifier.decision_function, found)).ndim == 1:
                positive = expit(2 * margins)
                all_labels[:, known] = np.stack([1 - positive, positive], axis=1)
            else:
                all_labels[:, known] = softmax(2 * margins, axis=1)
            return all_labels

        return probabilities

    def margins(
        self, features: Features, gold: NDArray[np.int64], num_labels: int
    ) -> Callable[[Features], NDArray[np.float64]]:
        """Fit the model; return a function from features to margins [N, labels], the lowest for labels not in train."""
        classifier = self.fitted(features, gold)

        def margins(found: Features) -> NDArray[np.float64]:
            all_labels = np.full((found.shape[0], num_labels), _NEVER)
            if len(all_labels):
                known = _one_threaded(classifier.decision_function, found)
                all_labels[:, classifier.classes_] = np.stack([-known, known], axis=1) if known.ndim == 1 else known
            return all_labels

        return margins


SVMS = tuple(LinearModel("linear_svm", c) for c in (0.1, 0.3, 1.0, 3.0))
NAIVE_BAYES = tuple(LinearModel("complement_naive_bayes", alpha) for alpha in (0.1, 0.5, 1.0))
"""Complement naive Bayes (Rennie et al. 2003) is hard to beat where rows are few and labels many."""
RIDGES = tuple(LinearModel("ridge", penalty) for penalty in (0.1, 1.0, 10.0, 100.0, 1000.0))
REGRESSIONS = tuple(LinearModel("logistic_regression", c) for c in (0.01, 0.1, 1.0, 10.0))
_SHARPNESSES = tuple(2.0**step for step in (0, 0.5, -0.5, 1, -1, 1.5, -1.5, 2, -2))
"""Powers of a model's probabilities from which dev chooses, nearest to 1 first; dev can be too easy for higher ones."""


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

    For a metric that reads probabilities, dev also chooses how sharp those of each model are (temperature scaling, Guo
    et al. 2017, arXiv 1706.04599, section 4.2); the sigmoid of an SVM's margin means little by itself.

    Args:
        train: Rows to fit on, and what to predict for their features: labels [N], several labels [N, L], or numbers [N]
            for ridge regression. Labels of a task without labels are 0 and 1.
        grid: By name, functions from rows to features, and the models to fit to them; the name may be empty.
        finished: Makes predictions of the probabilities or numbers of some rows.
    """
    rows, gold = train
    fitted: dict[tuple[str, LinearModel], Callable[[Features], NDArray[Any]]] = {}
    for option, (compute, models) in grid.items():
        features = compute(rows)  # shared by its models, which a scikit-learn pipeline for each would compute again
        fitted |= {(option, model): model.predictor(features, gold, len(given.kind.labels) or 2) for model in models}
    of_dev = {option: compute(given.dev) for option, (compute, _) in grid.items()}
    on_dev = {choice: predict(of_dev[choice[0]]) for choice, predict in fitted.items()}
    powers = _SHARPNESSES if given.kind.config.metric in PROBABILITY_SCORES else (1.0,)
    choices = itertools.product(fitted, powers)
    best, power = given.best(choices, lambda choice: finished(_sharpened(on_dev[choice[0]], choice[1]), given.dev))
    option, model = best
    return given.baseline(
        name,
        title,
        lambda rows: finished(_sharpened(fitted[best](grid[option][0](rows)), power), rows),
        {
            **({setting: option} if option else {}),
            **model.settings(),
            **({"sharpness": power} if len(powers) > 1 else {}),
        },
    )


def _sharpened(probabilities: NDArray[Any], power: float) -> NDArray[Any]:
    """Return probabilities [N, labels] of which a power, normalized, is taken; with 1 the very values."""
    if power == 1:
        return probabilities
    raised = probabilities.astype(np.float64) ** power
    return (raised / raised.sum(axis=1, keepdims=True)).astype(np.float32)


def split_by_row(values: NDArray[Any], lengths: Sequence[int]) -> list[NDArray[Any]]:
    """Return the values [T, ...] of each row; row n has lengths[n] of them."""
    return np.split(values, np.cumsum(lengths))[: len(lengths)]


def one_thread() -> threadpool_limits:
    """Compute dense sums in one thread, so that their rounding does not depend on the machine's cores."""
    return threadpool_limits(1)


def _one_threaded(function: Callable[[Features], NDArray[Any]], features: Features) -> NDArray[Any]:
    with one_thread():
        return function(features)


def tagged_by(
    given: BaselineInputs,
    name: str,
    title: str,
    features: Callable[[Sequence[TaggedRows]], Sequence[Features]],
    models: Sequence[LinearModel],
    thresholds: Sequence[float],
    *,
    most_words: int,
) -> list[Baseline]:
    """Tag each word independently, with the model and the threshold that score best on dev.

    Args:
        features: Maps train, dev and the tests, in this order, to the features of all their words, [W, F] each.
        thresholds: Values to subtract from the margin of O: above 0, more entities are predicted. Among equals, the one
            nearest to 0.
        most_words: Maximum number of words of train that are read, in whole sentences from the first on.

    Returns:
        One baseline; an empty list if all words of train have the same tag.
    """
    kind, dev, tests = given.kind, given.dev, given.tests
    reached = np.cumsum([len(words) for words in given.train.words])
    train = given.train.first(max(1, int(np.searchsorted(reached, most_words, side="right"))))
    numbers = {label: number for number, label in enumerate(kind.labels)}
    gold = np.array([numbers[tag] for tags in train.tags for tag in tags], dtype=np.int64)
    if len(np.unique(gold)) < 2:
        return []
    of_train, of_dev, *of_tests = features([train, dev, *tests.values()])
    nearest_first = sorted(thresholds, key=lambda value: (abs(value), value))
    fitted = {model: model.margins(of_train, gold, len(kind.labels)) for model in models}
    on_dev = {model: margins(of_dev) for model, margins in fitted.items()}
    model, threshold = max(
        ((model, threshold) for model in models for threshold in nearest_first),
        key=lambda choice: dev_score(kind, dev, _tags(dev, on_dev[choice[0]], choice[1])),
    )
    predictions = {
        split: _tags(rows, fitted[model](found), threshold)
        for (split, rows), found in zip(given.scored.items(), [of_dev, *of_tests], strict=True)
    }
    settings = {**model.settings(), **({"threshold": threshold} if len(thresholds) > 1 else {})}
    return [Baseline(name=name, title=title, predictions=predictions, settings=settings)]


def _tags(rows: TaggedRows, margins: NDArray[np.float64], threshold: float) -> TagPredictions:
    """Return predictions, of confidence 1, from the margins of all words, [W, L]; the first label is O."""
    shifted = margins.copy()
    shifted[:, 0] -= threshold
    labels = split_by_row(shifted.argmax(axis=1), [len(words) for words in rows.words])
    return TagPredictions(labels, np.ones(len(rows)))


_MOST_WORDS = 400_000
_MODELS = tuple(LinearModel("linear_svm", c) for c in (0.01, 0.03, 0.1, 0.3))
_THRESHOLDS = tuple(step / 20 for step in range(-12, 25))
_BUCKETS = 2**20
_REACH = 2
_LONGEST_AFFIX = 4


def window_tagger(given: BaselineInputs, *, thresholds: Sequence[float] = _THRESHOLDS) -> list[Baseline]:
    """Fit a linear SVM on the word, its affixes and shape, its neighbours and properties of the sentence."""
    hasher = FeatureHasher(n_features=_BUCKETS, input_type="string", alternate_sign=False, dtype=np.float32)

    def features(several: Sequence[TaggedRows]) -> list[Features]:
        return [hasher.transform(each for words in rows.words for each in word_features(words)) for rows in several]

    title = "linear tagger over a window of words"
    return tagged_by(given, "window_tagger", title, features, _MODELS, thresholds, most_words=_MOST_WORDS)


def word_features(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names of the binary features of each word of a sentence.

    >>> next(word_features(["n_jobs", "is"]))[:8]
    ['always', 'word=n_jobs', 'lower=n_jobs', 'shape=x_x', '-2=<-1>', '-1=<-1>', '+1=is', '+2=<1>']
    """
    lower, shapes = [word.casefold() for word in words], [shape_of(word) for word in words]
    counts = Counter(lower)
    first, length = (lower[0] if lower else ""), min(len(words) // 8, 4)
    for place, word in enumerate(words):
        own, shape = lower[place], shapes[place]
        around = {
            offset: lower[place + offset] if 0 <= place + offset < len(words) else f"<{np.sign(offset)}>"
            for offset in range(-_REACH, _REACH + 1)
            if offset
        }
        yield [
            "always",
            f"word={word}",
            f"lower={own}",
            f"shape={shape}",
            *(f"{offset:+d}={other}" for offset, other in around.items()),
            *(f"shape{offset:+d}={shapes[place + offset]}" for offset in (-1, 1) if 0 <= place + offset < len(words)),
            f"-1,0={around[-1]} {own}",
            f"0,+1={own} {around[1]}",
            f"-1,+1={around[-1]} {around[1]}",
            f"-2,-1={around[-2]} {around[-1]}",
            f"+1,+2={around[1]} {around[2]}",
            *(f"begins={own[:size]}" for size in range(1, min(_LONGEST_AFFIX, len(own)) + 1)),
            *(f"ends={own[-size:]}" for size in range(1, min(_LONGEST_AFFIX, len(own)) + 1)),
            f"length={min(len(own), 12)}",
            f"place={min(place, 4)}",
            f"shape,place={shape} {min(place, 2)}",
            f"shape,-1={shape} {around[-1]}",
            f"shape,+1={shape} {around[1]}",
            f"sentence begins={first}",
            f"sentence begins, shape={first} {shape}",
            f"sentence length={length}",
            f"times={min(counts[own], 3)} {shape}",
        ]


def shape_of(word: str) -> str:
    """Return the shape of a word, one mark per run of characters of a class: X upper case, x other letters, 0 digits,
    other characters as they are. The shape of a single character ends with a dot.

    >>> shape_of("DataFrame2"), shape_of("n_jobs"), shape_of("x")
    ('XxXx0', 'x_x', 'x.')
    """
    shape = ""
    for character in word:
        mark = "X" if character.isupper() else "x" if character.isalpha() else "0" if character.isdigit() else character
        if not shape.endswith(mark):
            shape += mark
    return f"{shape}." if len(word) == 1 else shape
