"""Baselines for sentences in context: linear models on a sentence alone, on its neighbours, and on vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack

from bertline.kinds.sentence_labelling.data import SentenceRows
from bertline.sweep.baselines.base import Baseline, BaselineInputs
from bertline.sweep.baselines.linear import SVMS, Features, LinearModel, linear_baseline, split_by_row
from bertline.sweep.baselines.text_features import NgramFeatures, num_rows_read
from bertline.sweep.baselines.vectors import MODELS, MOST_ROWS, NAMES, TITLES, text_features
from bertline.tasks.stored_rows import TextRows

_PLACES = 10
Read = Callable[[SentenceRows], Features]
"""Function from documents to the features [T, F] of their T sentences."""


def baselines(inputs: BaselineInputs) -> list[Baseline]:
    """Return the most frequent label and linear models on n-grams, with and without context, and on vectors."""
    read = _flat(inputs.train)
    words = NgramFeatures(read.first(num_rows_read(read, "word")), "word")
    title = "word n-grams of the sentence"
    counts = inputs.kind.label_counts(inputs.train)
    shares = (counts / max(sum(map(len, inputs.train.labels)), 1)).astype(np.float32)

    def fitted(name: str, title: str, features: Mapping[str, Read], models: Sequence[LinearModel]) -> Baseline:
        grid = {option: (compute, models) for option, compute in features.items()}
        return linear_baseline(
            inputs, name, title, (inputs.train, read.labels), grid, setting="vectors", finished=_of_documents
        )

    made = [
        inputs.baseline(
            "majority",
            "most frequent label",
            lambda rows: [np.tile(shares, (len(of_row), 1)) for of_row in rows.labels],
        ),
        fitted("word_ngrams", title, {"": _of_sentences(words)}, SVMS),
        fitted("context_ngrams", f"{title}, its neighbours and its place", {"": _in_context(words)}, SVMS),
    ]
    for name in NAMES if inputs.encoder is not None else ():
        features = text_features(name, inputs, read.first(MOST_ROWS[name]))
        of_rows = {option: _of_sentences(compute) for option, compute in features.items()}
        made.append(fitted(name, f"{TITLES[name][1]}, logistic regression", of_rows, MODELS))
    return made


def _in_context(words: NgramFeatures) -> Read:
    """Return features of the sentence, of the one before, of the one after, and of the place in the document."""

    def features(rows: SentenceRows) -> csr_matrix:
        own = words(_flat(rows))
        lengths = np.array([len(sentences) for sentences in rows.sentences], dtype=np.int64)
        ends = np.cumsum(lengths)
        place = np.concatenate([np.arange(length) for length in lengths])
        from_end = np.repeat(lengths, lengths) - 1 - place
        numbers = np.arange(int(ends[-1]))
        before, after = _rows_at(own, numbers - 1, place > 0), _rows_at(own, numbers + 1, from_end > 0)
        bins = np.eye(_PLACES)
        relative = (place * _PLACES // np.repeat(lengths, lengths)).astype(np.int64)
        places = [bins[relative], bins[np.minimum(place, _PLACES - 1)], bins[np.minimum(from_end, _PLACES - 1)]]
        return hstack([own, before, after, csr_matrix(np.concatenate(places, axis=1))]).tocsr()

    return features


def _rows_at(features: csr_matrix, numbers: NDArray[np.int64], kept: NDArray[np.bool_]) -> csr_matrix:
    """Return the features of the sentences with these numbers; zeros where not `kept`."""
    return csr_matrix(features[np.where(kept, numbers, 0)].multiply(kept[:, None]))


def _of_sentences(compute: Callable[[TextRows], Features]) -> Read:
    return lambda rows: compute(_flat(rows))


def _flat(rows: SentenceRows) -> TextRows:
    """Return the sentences of all documents as rows of their own."""
    texts = [sentence for sentences in rows.sentences for sentence in sentences]
    labels = np.array([label for of_row in rows.labels for label in of_row], dtype=np.int64)
    return TextRows([str(number) for number in range(len(texts))], texts, None, labels)


def _of_documents(probabilities: NDArray[np.float32], rows: SentenceRows) -> list[NDArray[np.float32]]:
    return split_by_row(probabilities, [len(sentences) for sentences in rows.sentences])
