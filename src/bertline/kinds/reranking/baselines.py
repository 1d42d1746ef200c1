"""Baselines for re-ranking: the first stage, what query and candidate share, and vectors of an encoder."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertline.kinds.reranking.model import CandidateScores
from bertline.sweep.baselines.base import Baseline, BaselineInputs
from bertline.sweep.baselines.encoder_vectors import TextVectors
from bertline.sweep.baselines.linear import REGRESSIONS, linear_baseline, split_by_row
from bertline.sweep.baselines.text_features import PairOverlap, Standardised
from bertline.sweep.baselines.vectors import NAMES, TITLES, Name, choices_of, unit
from bertline.tasks.stored_rows import CandidateRows

MOST_PAIRS = 100_000
"""Maximum number of candidates that are read from the first rows of train, always all candidates of a query."""


def baselines(inputs: BaselineInputs) -> list[Baseline]:
    """Return the first stage, a linear model on what query and candidate share, and rankings by vectors."""
    made = [inputs.baseline("bm25", "BM25", inputs.kind.first_stage), *_candidate_overlap(inputs)]
    return made + [_on_vectors(inputs, name) for name in NAMES if inputs.encoder is not None]


def _candidate_overlap(inputs: BaselineInputs) -> list[Baseline]:
    """Fit logistic regression on what query and candidate share and on the first stage's score and rank.

    The list is empty if all candidates of train are relevant, or none is.
    """
    ends = np.cumsum([len(candidates) for candidates in inputs.train.candidates])
    read = inputs.train.first(max(1, int(np.searchsorted(ends, MOST_PAIRS, side="right"))))
    relevant = np.array([value > 0 for values in read.relevances for value in values], dtype=np.int64)
    if len(np.unique(relevant)) < 2:
        return []
    overlap = Standardised(PairOverlap(*_pairs(read)), *_pairs(read))

    def features(rows: CandidateRows) -> NDArray[np.float64]:
        return np.concatenate([overlap(*_pairs(rows)), _first_scores(rows)], axis=1)

    def scores(probabilities: NDArray[np.float32], rows: CandidateRows) -> CandidateScores:
        return split_by_row(probabilities[:, 1], [len(texts) for texts in rows.candidates])

    title = "what query and candidate share, logistic regression"
    grid = {"": (features, REGRESSIONS)}
    return [linear_baseline(inputs, "pair_features", title, (read, relevant), grid, finished=scores)]


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


def _on_vectors(inputs: BaselineInputs, name: Name) -> Baseline:
    """Rank candidates by the cosine of their vectors with the query's."""

    def scores(vectors: TextVectors, rows: CandidateRows) -> list[NDArray[np.float32]]:
        return [
            unit(vectors(texts)) @ unit(vectors([query]))[0] if texts else np.zeros(0, dtype=np.float32)
            for query, texts in zip(rows.queries, rows.candidates, strict=True)
        ]

    what, _, title = TITLES[name]
    choices = choices_of(name, inputs, inputs.train)
    best = inputs.best(choices, lambda option: scores(choices[option], inputs.dev))
    return inputs.baseline(name, title, lambda rows: scores(choices[best], rows), {what: best})
