"""Baselines of texts and words: linear models on n-grams, on what a pair shares, and on an encoder's own vectors."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertline.baselines.base import Baseline, BaselineInputs
from bertline.baselines.frozen_encoder import TextVectors, Vectors
from bertline.baselines.linear import Grid, LinearModel, linear_baseline, tagged_by, window_tagger
from bertline.encoding.sequences import unit
from bertline.linear.features import (
    UNIT_TITLES,
    UNITS,
    NgramFeatures,
    PairFeatures,
    PairOverlap,
    TextsRows,
    Unit,
    columns,
    mean_and_scale,
    rows_read,
    standardised,
)
from bertline.linear.model import Clipped
from bertline.tasks.stored_rows import TaggedRows
from bertline.tasks.tag_predictions import TagPredictions

Name = Literal["frozen_encoder", "static_embeddings"]
VECTOR_NAMES: tuple[Name, ...] = ("static_embeddings", "frozen_encoder")
VECTOR_TITLES: dict[Name, tuple[str, str, str]] = {
    "frozen_encoder": ("pooling", "frozen encoder", "frozen encoder, cosine"),
    "static_embeddings": ("weights", "static embeddings", "static embeddings, cosine"),
}
MOST_ROWS = 20_000
"""Maximum number of rows that are read, the first ones of train; the encoder has to read each of them."""
MOST_PAIRS = 100_000
"""Maximum number of pairs that are read, the first ones of train."""
_MOST_WORDS = 100_000  # of tagged rows, in whole sentences from the first on
_THRESHOLDS = tuple(step / 4 for step in range(-2, 19))
"""Thresholds for tagging: logistic regression over few features is easily too confident of O."""
_LEAST_DEVIATION = 1e-6
MODELS = tuple(LinearModel("logistic_regression", c) for c in (0.001, 0.01, 0.1, 1.0))
"""Linear models on standardised vectors from which dev chooses."""
UNIT_MODELS = tuple(LinearModel("logistic_regression", c) for c in (1.0, 10.0, 100.0))
"""Those on vectors of length 1, whose values are small."""


def text_baselines(
    given: BaselineInputs,
    gold: Callable[[Any], NDArray[Any]],
    titles: tuple[str, str],
    *,
    ngrams: Sequence[LinearModel],
    overlap: Sequence[LinearModel],
    overlap_and_words: Sequence[LinearModel],
    vectors: Sequence[LinearModel],
    unit_vectors: Sequence[LinearModel] = (),
    vector_setting: str | None = None,
    finished: Clipped | None = None,
) -> list[Baseline]:
    """Fit linear models on n-grams, on what the two texts of a pair share, and on the vectors of an encoder.

    Args:
        gold: Returns what to predict for rows; see `linear_baseline`.
        titles: Name of the models of n-grams, and of the others.
        ngrams: Models from which dev chooses, as those that follow.
        overlap: Models of what the two texts of a pair share.
        vector_setting: Key of the chosen vectors in the settings; None: that of the vectors.
        finished: See `linear_baseline`.
    """
    of_ngrams, of_others = titles

    def fitted(name: str, title: str, read: Any, grid: Any, setting: str = "features") -> Baseline:
        return linear_baseline(given, name, title, (read, gold(read)), grid, setting=setting, finished=finished)

    def of_ngrams_in(unit: Unit) -> Callable[[Any], Grid]:
        return lambda rows: {"": (NgramFeatures.fitted(rows, unit), ngrams)}

    def of_overlap(rows: Any) -> Grid:
        shared, words = PairOverlap.fitted(*columns(rows)), NgramFeatures.fitted(rows, "word")
        scaling = mean_and_scale(shared(*columns(rows)), 1e-9)
        return {
            "overlap": (PairFeatures(shared, *scaling, None), overlap),
            "overlap and words": (PairFeatures(shared, *scaling, words), overlap_and_words),
        }

    def of_vectors(name: Name) -> Callable[[Any], Grid]:
        has_units = name == "frozen_encoder" and unit_vectors
        units: Grid = {"length 1": (unit_features(given), unit_vectors)} if has_units else {}
        return lambda rows: {
            **units,
            **{option: (compute, vectors) for option, compute in text_features(name, given, rows).items()},
        }

    made = []
    # Only words for pairs, where each text alone says little about the label.
    for unit_of_text in UNITS if given.train.text_pairs is None else UNITS[:1]:
        read = rows_read(given.train, unit_of_text)
        title = f"{UNIT_TITLES[unit_of_text]}, {of_ngrams}"
        made.append(fitted(f"{unit_of_text}_ngrams", title, read, of_ngrams_in(unit_of_text)))
    if given.train.text_pairs is not None:
        read = given.train.first(MOST_PAIRS)
        made.append(fitted("pair_features", f"what the two texts share, {of_others}", read, of_overlap))
    for name in VECTOR_NAMES if given.encoder is not None else ():
        setting, title, _ = VECTOR_TITLES[name]
        read = given.train.first(MOST_ROWS)
        made.append(fitted(name, f"{title}, {of_others}", read, of_vectors(name), vector_setting or setting))
    return made


def text_features(name: Name, given: BaselineInputs, train: Any) -> dict[str, Callable[[Any], Vectors]]:
    """Return, for each setting from which dev chooses, a function from rows of texts or pairs to their
    features (`of_both_texts`)."""

    def of_texts(vectors: TextVectors, rows: TextsRows) -> Vectors:
        return of_both_texts([vectors(texts) for texts in columns(rows)])

    return {
        option: standardised(partial(of_texts, vectors), train, least=_LEAST_DEVIATION)
        for option, vectors in choices_of(name, given, train).items()
    }


def unit_features(given: BaselineInputs) -> Callable[[Any], Vectors]:
    """Return a function from rows to vectors of length 1, pooled as the encoder's folder says."""
    assert given.encoder is not None
    vectors = given.encoder.choices()[given.encoder.pooling]
    return lambda rows: of_both_texts([unit(vectors(texts)) for texts in columns(rows)])


def of_both_texts(found: list[Vectors]) -> Vectors:
    """Return the vectors of texts; of pairs, those of both texts, their absolute difference and their product."""
    if len(found) == 2:
        found = [*found, np.abs(found[0] - found[1]), found[0] * found[1]]
    return np.concatenate(found, axis=1)


def tagging_baselines(
    given: BaselineInputs, unknown: Callable[[Sequence[Counter[int]]], int], **thresholds: Sequence[float]
) -> list[Baseline]:
    """Return each word's most frequent tag, and linear taggers on a window of words and on an encoder's vectors.

    Args:
        unknown: Returns the label of words that train does not have, from how often each word of train has each label.
    """
    made = [_most_frequent_tag(given, unknown), *window_tagger(given, **thresholds)]
    for name in VECTOR_NAMES if given.encoder is not None else ():
        made += tagging_baseline(name, given, **thresholds)
    return made


def _most_frequent_tag(given: BaselineInputs, unknown: Callable[[Sequence[Counter[int]]], int]) -> Baseline:
    """Give a word the tag that it has most often in train, in this spelling; among equals, that of the first label."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for words, labels in zip(given.train.words, given.kind.gold(given.train), strict=True):
        for word, label in zip(words, labels.tolist(), strict=True):
            counts[word][label] += 1
    known = {word: most_frequent(found) for word, found in counts.items()}
    of_unknown = unknown([*counts.values()])

    def predicted(rows: TaggedRows) -> TagPredictions:
        found = [np.array([known.get(word, of_unknown) for word in words], dtype=np.int64) for words in rows.words]
        return TagPredictions(found, np.ones(len(rows)))

    return given.baseline("most_frequent_tag", "most frequent tag of each word", predicted)


def most_frequent(counts: Counter[int]) -> int:
    """Return the most frequent label; among equals, the first."""
    return min(counts, key=lambda label: (-counts[label], label))


def tagging_baseline(name: Name, given: BaselineInputs, *, thresholds: Sequence[float] = _THRESHOLDS) -> list[Baseline]:
    """Fit logistic regression on each word's vector; static vectors have no context, so the neighbours' are added."""
    encoder = given.encoder
    assert encoder is not None

    def vectors(rows: TaggedRows) -> Vectors:
        if name == "frozen_encoder":
            return encoder.of_words(rows, given.kind)
        return _with_neighbours(encoder.static_of_words(rows), [len(words) for words in rows.words])

    def features(several: Sequence[TaggedRows]) -> list[Vectors]:
        found = [vectors(rows) for rows in several]
        mean, scale = mean_and_scale(found[0], _LEAST_DEVIATION)
        for each in found:
            each -= mean
            each *= scale
        return found

    title = f"{VECTOR_TITLES[name][1]}, logistic regression"
    return tagged_by(given, name, title, features, MODELS, thresholds, most_words=_MOST_WORDS)


def rankings_by_vectors(
    given: BaselineInputs, ranked: Callable[[TextVectors, Sequence[Any]], Sequence[Any]]
) -> list[Baseline]:
    """Return rankings by the cosine of vectors, of tokens and of texts, whose settings dev chooses.

    Args:
        ranked: Returns the predictions for several lists of rows from a function from texts to vectors.
    """

    def ranking(name: Name) -> Baseline:
        setting, _, title = VECTOR_TITLES[name]
        choices = choices_of(name, given, given.train)
        best = given.best(choices, lambda option: ranked(choices[option], [given.dev])[0])
        predictions = dict(zip(given.scored, ranked(choices[best], [*given.scored.values()]), strict=True))
        return Baseline(name=name, title=title, predictions=predictions, settings={setting: best})

    return [ranking(name) for name in VECTOR_NAMES if given.encoder is not None]


def choices_of(name: Name, given: BaselineInputs, train: Any) -> dict[str, TextVectors]:
    """Return, for each setting from which dev chooses, a function from texts to their vectors."""
    assert given.encoder is not None
    if name == "frozen_encoder":
        return given.encoder.choices()
    return given.encoder.static_choices(train.texts_read()[:MOST_ROWS])


def _with_neighbours(vectors: Vectors, lengths: Sequence[int]) -> Vectors:
    """Return [T, 3 D]: the vectors of the previous word, the word itself and the next one; 0 beyond the ends of a row.

    Args:
        vectors: Vectors of words [T, D], one row after the other.
    """
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    same_row = (row_of[1:] == row_of[:-1])[:, None]
    before, after = np.zeros_like(vectors), np.zeros_like(vectors)
    before[1:] = vectors[:-1] * same_row
    after[:-1] = vectors[1:] * same_row
    return np.concatenate([before, vectors, after], axis=1)
