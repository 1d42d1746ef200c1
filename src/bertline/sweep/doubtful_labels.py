"""Labels that look wrong: models that did not see a row find its label much less likely than
another.

Confident learning (Northcutt et al., arXiv 1911.00068, section 3): a row counts for the likeliest
of the labels that reach their own threshold, the mean probability that their rows give them. Those
that count for another label than their own are ranked by the probability of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.baselines.frozen_encoder import FrozenEncoder
from bertline.baselines.linear import LinearModel
from bertline.baselines.vectors import MOST_ROWS, of_both_texts, unit
from bertline.kinds.base import paired_columns
from bertline.linear.features import NgramFeatures, columns, rows_read
from bertline.sweep.folds import folds_of
from bertline.tasks.stored_rows import TextRows

_MOST_DECISIONS = 500_000
"""Maximum number of rows times labels that are predicted out of fold."""
_FEWEST_ROWS, _FEWEST_OF_LABEL = 100, 10
"""Of fewer rows in all, or sources of rows with a label, nothing is claimed: no model could know
the label."""
_TIMES_AS_LIKELY = 3.0
"""How much likelier another label has to be: to weak models another is a little likelier for many
right rows."""
_WORDS, _VECTORS = LinearModel("linear_svm", 1.0), LinearModel("logistic_regression", 1.0)


def out_of_fold(rows: TextRows, num_labels: int, encoder: FrozenEncoder | None) -> NDArray[np.float32]:
    """Return the probabilities [N, labels] of rows, each by linear models that did not see it: on
    n-grams of words and on an encoder's vectors, averaged, because they err on other rows."""
    found = np.zeros((len(rows), num_labels), dtype=np.float32)
    read = None if encoder is None else encoder.choices()["mean"]
    vectors = None if read is None else of_both_texts([unit(read(texts)) for texts in columns(rows)])
    for learned, predicted in folds_of(rows, seed=0):
        train = rows.take(learned)
        words = NgramFeatures.fitted(train, "word")
        found[predicted] = _WORDS.fitted(words(train), train.labels, num_labels)(words(rows.take(predicted)))
        if vectors is not None:
            found[predicted] += _VECTORS.fitted(vectors[learned], train.labels, num_labels)(vectors[predicted])
            found[predicted] /= 2
    return found


def doubtful_labels(rows: TextRows, labels: Sequence[str], encoder: FrozenEncoder | None) -> list[dict[str, Any]]:
    """Return those of the first train rows whose label looks wrong, the likeliest first: id (file
    and line), texts, `gold`, the `predicted` label with its probability (`score`) and that of the
    given one (`score_of_gold`)."""
    if len(rows) < _FEWEST_ROWS or len(set(rows.sources())) < _FEWEST_OF_LABEL:
        return []
    rows = rows_read(rows.first(min(MOST_ROWS, max(_MOST_DECISIONS // len(labels), _FEWEST_ROWS))), "word")
    return ranked(rows, labels, out_of_fold(rows, len(labels), encoder))


def ranked(rows: TextRows, labels: Sequence[str], probabilities: NDArray[np.floating[Any]]) -> list[dict[str, Any]]:
    """Return the rows whose label looks wrong by their probabilities [N, labels]; see
    `doubtful_labels`."""
    gold, counts = rows.labels, np.bincount(rows.labels, minlength=len(labels))
    labels_of_sources = {*zip(rows.sources(), gold.tolist(), strict=True)}
    is_known = np.bincount([label for _, label in labels_of_sources], minlength=len(labels)) >= _FEWEST_OF_LABEL
    own = probabilities[np.arange(len(rows)), gold]
    thresholds = np.bincount(gold, own, len(labels)) / np.maximum(counts, 1)
    thresholds[~is_known] = np.inf
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    predicted, score = confident.argmax(axis=1), confident.max(axis=1)
    places = np.flatnonzero((score > _TIMES_AS_LIKELY * own) & is_known[gold])
    found = {
        **paired_columns(rows),
        "gold": np.array(labels)[gold],
        "predicted": np.array(labels)[predicted],
        "score": score.astype(np.float64).round(4),
        "score_of_gold": own.astype(np.float64).round(4),
    }
    return pa.table(found).take(pa.array(places[np.argsort(own[places], kind="stable")], pa.int64())).to_pylist()
