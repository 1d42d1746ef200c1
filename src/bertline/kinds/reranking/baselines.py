"""Baselines for re-ranking: the first stage, what query and candidate share, and vectors of an encoder."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertline.kinds.reranking.model import CandidateScores
from bertline.sweep.baselines.base import Baseline, Given, best_on_dev, predictions_of
from bertline.sweep.baselines.encoder_vectors import FrozenEncoder, TextVectors
from bertline.sweep.baselines.linear import REGRESSIONS, of_one_label
from bertline.sweep.baselines.text_features import PairOverlap, Standardised
from bertline.sweep.baselines.vectors import NAMES, TITLES, Name, choices_of, unit
from bertline.tasks.stored_rows import CandidateRows

MOST_PAIRS = 100_000
"""Maximum number of candidates that are read from the first rows of train, always all candidates of a query."""


def baselines(given: Given) -> list[Baseline]:
    """Return the first stage, a linear model on what query and candidate share, and rankings by vectors."""
    made = [_first_stage(given), *_candidate_overlap(given)]
    if given.encoder is not None:
        made += [_on_vectors(given, given.encoder, name) for name in NAMES]
    return made


def _first_stage(given: Given) -> Baseline:
    """Return the baseline that keeps the order of the first stage, which is BM25's."""
    predictions = predictions_of(given.kind.first_stage, given.dev, given.tests)
    return Baseline(name="bm25", title="BM25", predictions=predictions)


def _candidate_overlap(given: Given) -> list[Baseline]:
    """Fit logistic regression on what query and candidate share and on the first stage's score and rank.

    The list is empty if all candidates of train are relevant, or none is.
    """
    ends = np.cumsum([len(candidates) for candidates in given.train.candidates])
    read = given.train.first(max(1, int(np.searchsorted(ends, MOST_PAIRS, side="right"))))
    relevant = np.array([value > 0 for values in read.relevances for value in values], dtype=np.int64)
    if len(np.unique(relevant)) < 2:
        return []
    overlap = Standardised(PairOverlap(*_pairs(read)), *_pairs(read))

    def features(rows: CandidateRows) -> NDArray[np.float64]:
        return np.concatenate([overlap(*_pairs(rows)), _first_scores(rows)], axis=1)

    train_features, dev_features = features(read), features(given.dev)
    fitted = {model: of_one_label(model, train_features, relevant, 2) for model in REGRESSIONS}

    def scores(probabilities: NDArray[np.float32], rows: CandidateRows) -> CandidateScores:
        return np.split(probabilities[:, 1], np.cumsum([len(one) for one in rows.candidates]))[: len(rows)]

    best = best_on_dev(given.kind, given.dev, fitted, lambda model: scores(fitted[model](dev_features), given.dev))
    return [
        Baseline(
            name="pair_features",
            title="what query and candidate share, logistic regression",
            predictions=predictions_of(lambda rows: scores(fitted[best](features(rows)), rows), given.dev, given.tests),
            settings=best.settings(),
        )
    ]


def _pairs(rows: CandidateRows) -> tuple[list[str], list[str]]:
    queries = [query for query, texts in zip(rows.queries, rows.candidates, strict=True) for _ in texts]
    return queries, [text for texts in rows.candidates for text in texts]


def _first_scores(rows: CandidateRows) -> NDArray[np.float64]:
    """Return [candidates, 2]: the score of the first stage relative to the largest, and -log(1 + rank), rank from 0."""
    columns = [np.zeros((0, 2))]
    for of_query in rows.first_scores:
        scores = np.array(of_query, dtype=np.float64)
        ranks = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
        best = np.abs(scores).max(initial=0.0)
        columns.append(np.stack([scores / best if best else scores, -np.log1p(ranks)], axis=1))
    return np.concatenate(columns)


def _on_vectors(given: Given, encoder: FrozenEncoder, name: Name) -> Baseline:
    """Rank candidates by the cosine of their vectors with the query's."""

    def scores(vectors: TextVectors, rows: CandidateRows) -> list[NDArray[np.float32]]:
        return [
            unit(vectors(texts)) @ unit(vectors([query]))[0] if texts else np.zeros(0, dtype=np.float32)
            for query, texts in zip(rows.queries, rows.candidates, strict=True)
        ]

    what, _, title = TITLES[name]
    choices = choices_of(name, encoder, given.train)
    best = best_on_dev(given.kind, given.dev, choices, lambda option: scores(choices[option], given.dev))
    return Baseline(
        name=name,
        title=title,
        predictions=predictions_of(lambda rows: scores(choices[best], rows), given.dev, given.tests),
        settings={what: best},
    )
