"""Labels that look wrong: rows whose given label a model that did not see them finds much less likely than another.

Confident learning (Northcutt et al., arXiv 1911.00068, sections 3.1 and 3.2): a row counts for the likeliest of the
labels that reach their own threshold, the mean probability that their rows give them. Those that count for another
label than their own are ranked by the probability of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.demo.config import DocsSourceConfig
from bertline.kinds.base import paired_columns
from bertline.linear.features import NgramFeatures, columns, num_rows_read
from bertline.sweep.baselines.linear import LinearModel
from bertline.sweep.baselines.vectors import MOST_ROWS, FrozenEncoder, of_both_texts, unit
from bertline.sweep.bench import SweepJob
from bertline.sweep.folds import folds_of, has_one_label
from bertline.tasks.stored_rows import TextRows

_MOST_DECISIONS = 500_000
"""Maximum number of rows times labels that are predicted out of fold, within seconds to a few minutes."""
_FEWEST_ROWS, _FEWEST_OF_LABEL = 100, 10
"""Of fewer rows in all, or with a label, nothing is claimed: no model could know the label."""
_WORDS, _VECTORS = LinearModel("linear_svm", 1.0), LinearModel("logistic_regression", 1.0)


def are_checked(job: SweepJob) -> bool:
    """Return whether the labels of a task are checked: there is one a row, and people gave it."""
    return has_one_label(job.task) and not isinstance(job.task.source, DocsSourceConfig)


def out_of_fold(rows: TextRows, num_labels: int, encoder: FrozenEncoder | None, seed: int) -> NDArray[np.float32]:
    """Return the probabilities [N, labels] of the first rows, each by two linear models that did not see it.

    The mean of word n-grams and of the encoder's vectors finds more wrong labels than either: they err on other rows.
    """
    rows = rows.first(min(MOST_ROWS, max(_MOST_DECISIONS // num_labels, _FEWEST_ROWS), num_rows_read(rows, "word")))
    vectors = None
    if encoder is not None:
        vectors = of_both_texts([unit(encoder.choices([])["mean"](texts)) for texts in columns(rows)])
    found = np.zeros((len(rows), num_labels), dtype=np.float32)
    for learned, predicted in folds_of(rows, seed):
        train = rows.take(learned)
        words = NgramFeatures.fitted(train, "word")
        found[predicted] = _WORDS.fitted(words(train), train.labels, num_labels)(words(rows.take(predicted)))
        if vectors is not None:
            found[predicted] += _VECTORS.fitted(vectors[learned], train.labels, num_labels)(vectors[predicted])
            found[predicted] /= 2
    return found


def doubtful_labels(
    rows: TextRows, labels: Sequence[str], probabilities: NDArray[np.floating[Any]]
) -> list[dict[str, Any]]:
    """Return the rows whose label looks wrong, the likeliest first: id (file and line), texts, `gold`, the `predicted`
    label with its probability (`score`) and that of the given one (`score_of_gold`), all out of fold [N, labels]."""
    gold, counts = rows.labels, np.bincount(rows.labels, minlength=len(labels))
    if len(rows) < _FEWEST_ROWS:
        return []
    own = probabilities[np.arange(len(rows)), gold]
    thresholds = np.bincount(gold, own, len(labels)) / np.maximum(counts, 1)
    thresholds[counts < _FEWEST_OF_LABEL] = np.inf
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    predicted = confident.argmax(axis=1)
    is_doubtful = (confident.max(axis=1) > own) & (predicted != gold) & (counts[gold] >= _FEWEST_OF_LABEL)
    places = np.flatnonzero(is_doubtful)
    places = places[np.argsort(own[places], kind="stable")]
    found = {
        **paired_columns(rows),
        "gold": [labels[number] for number in gold],
        "predicted": [labels[number] for number in predicted],
        "score": confident.max(axis=1).astype(np.float64).round(4),
        "score_of_gold": own.astype(np.float64).round(4),
    }
    return pa.table(found).take(pa.array(places, pa.int64())).to_pylist()
