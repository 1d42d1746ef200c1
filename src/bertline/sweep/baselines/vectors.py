"""Baselines on the vectors of an encoder that is not trained: linear models, and ranking by cosine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bertline.finetuning.word_tagging import WordTagger
from bertline.sweep.baselines.base import Baseline, best_on_dev, predictions_of
from bertline.sweep.baselines.encoder_vectors import FrozenEncoder, TextVectors, Vectors
from bertline.sweep.baselines.linear import LinearModel, of_many_labels, of_one_label
from bertline.sweep.baselines.linear_tagger import LinearTagger, first_words, tagged_by
from bertline.sweep.baselines.text_features import TextsRows, columns
from bertline.tasks.stored_rows import MultiLabelRows, SplitName, TaggedRows

Name = Literal["frozen_encoder", "static_embeddings"]
NAMES: tuple[Name, ...] = ("static_embeddings", "frozen_encoder")
TITLES: dict[Name, tuple[str, str, str]] = {
    "frozen_encoder": ("pooling", "frozen encoder", "frozen encoder, cosine"),
    "static_embeddings": ("weights", "static embeddings", "static embeddings, cosine"),
}
MOST_ROWS: dict[Name, int] = {"frozen_encoder": 20_000, "static_embeddings": 20_000}
"""Maximum number of rows that are read, the first ones of train; the encoder has to read each of them."""
MOST_WORDS = 100_000
"""Maximum number of words of tagged rows that are read, in whole sentences from the first on."""
_THRESHOLDS = tuple(step / 4 for step in range(-2, 19))
"""Thresholds for tagging: logistic regression over few features is easily too confident of O."""
MODELS = tuple(LinearModel("logistic_regression", c) for c in (0.001, 0.01, 0.1, 1.0))
"""Linear models on vectors from which dev chooses."""


def linear_baseline(
    name: Name, encoder: FrozenEncoder, kind: Any, train: Any, dev: Any, tests: Mapping[SplitName, Any]
) -> Baseline:
    """Fit logistic regression on vectors of texts; for a pair, on both, their absolute difference and their product."""
    read = train.first(MOST_ROWS[name])
    what, title, _ = TITLES[name]
    features = text_features(name, encoder, read)
    fitted = {}
    for option, compute in features.items():
        found = compute(read)
        for model in MODELS:
            fitted[option, model] = (
                of_many_labels(model, found, read.labels)
                if isinstance(read, MultiLabelRows)
                else of_one_label(model, found, read.labels, len(kind.labels))
            )
    of_dev = {option: compute(dev) for option, compute in features.items()}
    best = best_on_dev(kind, dev, fitted, lambda choice: fitted[choice](of_dev[choice[0]]))
    return Baseline(
        name=name,
        title=f"{title}, logistic regression",
        predictions=predictions_of(lambda rows: fitted[best](features[best[0]](rows)), dev, tests),
        settings={what: best[0], **best[1].settings()},
    )


def text_features(name: Name, encoder: FrozenEncoder, train: Any) -> dict[str, Callable[[Any], Vectors]]:
    """Return, for each setting from which dev chooses, a function from rows of texts or pairs to their features."""
    return {
        option: _Standardised(_of_texts(vectors), train) for option, vectors in choices_of(name, encoder, train).items()
    }


def tagging_baseline(
    name: Name,
    encoder: FrozenEncoder,
    kind: WordTagger,
    train: TaggedRows,
    dev: TaggedRows,
    tests: Mapping[SplitName, TaggedRows],
    *,
    thresholds: Sequence[float] = _THRESHOLDS,
) -> list[Baseline]:
    """Fit logistic regression on each word's vector; static vectors have no context, so the neighbours' are added."""

    def vectors(rows: TaggedRows) -> Vectors:
        if name == "frozen_encoder":
            return encoder.of_words(rows, kind)
        return _with_neighbours(encoder.static_of_words(rows), [len(words) for words in rows.words])

    def features(several: Sequence[TaggedRows]) -> list[Vectors]:
        found = [vectors(rows) for rows in several]
        mean, scale = _mean_and_scale(found[0])
        for each in found:
            each -= mean
            each *= scale
        return found

    tagger = LinearTagger(
        name=name,
        title=f"{TITLES[name][1]}, logistic regression",
        features=features,
        models=MODELS,
        thresholds=thresholds,
    )
    return tagged_by(tagger, kind, first_words(train, MOST_WORDS), dev, tests)


def choices_of(name: Name, encoder: FrozenEncoder, train: Any) -> dict[str, TextVectors]:
    """Return, for each setting from which dev chooses, a function from texts to their vectors."""
    choices: Callable[[Sequence[str]], dict[str, TextVectors]]
    choices = encoder.choices if name == "frozen_encoder" else encoder.static_choices
    return choices(train.texts_read()[: MOST_ROWS[name]])


class _Standardised:
    """Features of rows, each column with mean 0 and standard deviation 1 on train."""

    def __init__(self, features: Callable[[Any], Vectors], train: Any) -> None:
        self._features = features
        found = features(train)
        self._mean, self._scale = _mean_and_scale(found)

    def __call__(self, rows: Any) -> Vectors:
        return (self._features(rows) - self._mean) * self._scale


def _mean_and_scale(features: Vectors) -> tuple[Vectors, Vectors]:
    """Return the mean and the scale that standardise columns [N, F]; a constant column becomes 0."""
    deviation = features.std(axis=0)
    return features.mean(axis=0), np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0.0)


def _of_texts(vectors: TextVectors) -> Callable[[TextsRows], Vectors]:
    def features(rows: TextsRows) -> Vectors:
        found = [vectors(texts) for texts in columns(rows)]
        if len(found) == 2:
            first, second = found
            found += [np.abs(first - second), first * second]
        return np.concatenate(found, axis=1)

    return features


def _with_neighbours(vectors: Vectors, lengths: Sequence[int]) -> Vectors:
    """Return [T, 3 D]: the vectors of the previous word, the word itself and the next one; 0 beyond the ends of a row.

    Args:
        vectors: Vectors of words [T, D], one row after the other.
        lengths: Number of words of each row.
    """
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    same_row = (row_of[1:] == row_of[:-1])[:, None]
    before, after = np.zeros_like(vectors), np.zeros_like(vectors)
    before[1:] = vectors[:-1] * same_row
    after[:-1] = vectors[1:] * same_row
    return np.concatenate([before, vectors, after], axis=1)


def unit(vectors: Vectors) -> Vectors:
    """Return vectors of length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
