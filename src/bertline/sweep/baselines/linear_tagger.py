"""Linear taggers over features of words, such as a window of words; dev chooses penalty and threshold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction import FeatureHasher

from bertline.kinds.tagging import TagPredictions
from bertline.sweep.baselines.base import Baseline, BaselineInputs, dev_score
from bertline.sweep.baselines.linear import Features, LinearModel, margins_of, split_by_row
from bertline.tasks.stored_rows import SplitName, TaggedRows


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
    best, best_score = None, -np.inf
    for model in models:
        margins = margins_of(model, of_train, gold, len(kind.labels))
        on_dev = margins(of_dev)
        for threshold in nearest_first:
            score = dev_score(kind, dev, _tags(dev, on_dev, threshold))
            if score > best_score:
                best, best_score = (model, threshold, margins), score
    assert best is not None
    model, threshold, margins = best
    predictions: dict[SplitName, TagPredictions] = {"dev": _tags(dev, margins(of_dev), threshold)}
    for (split, rows), found in zip(tests.items(), of_tests, strict=True):
        predictions[split] = _tags(rows, margins(found), threshold)
    settings = {**model.settings(), **({"threshold": threshold} if len(thresholds) > 1 else {})}
    return [Baseline(name=name, title=title, predictions=predictions, settings=settings)]


def _tags(rows: TaggedRows, margins: NDArray[np.float64], threshold: float) -> TagPredictions:
    """Return predictions from the margins of all words, [W, L]; the first label is O. The confidence, which is not used
    for baselines, is always 1."""
    shifted = margins.copy()
    shifted[:, 0] -= threshold
    labels = split_by_row(shifted.argmax(axis=1), [len(words) for words in rows.words])
    return TagPredictions(labels, np.ones(len(rows)))


MOST_WORDS = 400_000
"""Maximum number of words of train that are read, in whole sentences from the first on."""
_MODELS = tuple(LinearModel("linear_svm", c) for c in (0.01, 0.03, 0.1, 0.3))
_THRESHOLDS = tuple(step / 20 for step in range(-12, 25))
_BUCKETS = 2**20
_REACH = 2
_LONGEST_AFFIX = 4


def window_tagger(given: BaselineInputs, *, thresholds: Sequence[float] = _THRESHOLDS) -> list[Baseline]:
    """Fit a linear SVM on the word, its affixes and shape, its neighbours and properties of the sentence."""
    hasher = FeatureHasher(n_features=_BUCKETS, input_type="string", alternate_sign=False, dtype=np.float32)

    def features(several: Sequence[TaggedRows]) -> list[csr_matrix]:
        return [
            hasher.transform(of_word for words in rows.words for of_word in word_features(words)) for rows in several
        ]

    title = "linear tagger over a window of words"
    return tagged_by(given, "window_tagger", title, features, _MODELS, thresholds, most_words=MOST_WORDS)


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
