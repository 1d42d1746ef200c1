"""Entities as tags of words: conversion of other schemes to IOB2, labels, and scores as in seqeval's default mode.

An entity is correct if its type, first word and last word are correct; scores are micro averages over all entities. The
CoNLL-2000 script `conlleval` counts in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bertline.tasks.metrics.classification import precision_recall_f1, scores_by_label

OUTSIDE = "O"
TAG = re.compile(r"[BIESLUMW]-\S+|O")
"""A tag of IOB1, IOB2 or IOBES, or of the same under other letters: BILOU has L and U for E and S, BMES M for I."""
_WORD_COLUMNS = 2
_ENTITY_COLUMNS = 3


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Convert the tags of one sentence, which all match `TAG`, to IOB2: B- on the first word of every entity, else I-.

    One rule reads every scheme: B, S, U and W begin an entity; the other letters continue one of their type that has
    not ended (by E, S, L, U or W), or begin one. So an I- in a wrong place begins an entity, as in seqeval.
    """
    converted: list[str] = []
    open_type = ""  # of the entity that the next word may continue
    for tag in tags:
        letter, _, kind = tag.partition("-")
        continues = letter in "IMEL" and kind == open_type
        converted.append(f"{'I' if continues else 'B'}-{kind}" if kind else OUTSIDE)
        open_type = kind if letter in "BIM" else ""
    return converted


def types_of(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the entity types among labels or tags, sorted."""
    return tuple(sorted({label.partition("-")[2] for label in labels if label != OUTSIDE}))


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return the entities of one sentence as (type, first word, last word).

    An I- that continues no entity of its type begins one. Tags are B-, I- or O (see `to_iob2`).

    References:
        seqeval 1.2.2, `metrics/sequence_labeling.py`, `get_entities`.
    """
    found: set[tuple[str, int, int]] = set()
    begin, kind = 0, ""
    inside = False
    for index, tag in enumerate([*tags, OUTSIDE]):
        letter, _, own = tag.partition("-")
        continues = inside and letter == "I" and own == kind
        if inside and not continues:
            found.add((kind, begin, index - 1))
        if letter != OUTSIDE and not continues:
            begin, kind = index, own
        inside = letter != OUTSIDE
    return found


def row_statistics(gold: Sequence[str], predicted: Sequence[str], types: Sequence[str]) -> NDArray[np.float64]:
    """Return the counts of one sentence: words, right words, then for each type hits, predicted and gold entities.

    `scores_of` sums the counts over sentences.
    """
    places = {kind: _WORD_COLUMNS + _ENTITY_COLUMNS * number for number, kind in enumerate(types)}
    share = np.zeros(_WORD_COLUMNS + _ENTITY_COLUMNS * len(types))
    share[0] = len(gold)
    share[1] = sum(one == other for one, other in zip(gold, predicted, strict=True))
    gold_entities, predicted_entities = entities(gold), entities(predicted)
    for offset, counted in enumerate((gold_entities & predicted_entities, predicted_entities, gold_entities)):
        for kind, _, _ in counted:
            share[places[kind] + offset] += 1
    return share


def scores_of(statistics: NDArray[np.float64]) -> dict[str, float]:
    """Return `entity_f1`, `precision` and `recall` over all entities, and `accuracy` over words.

    Args:
        statistics: [N, 2 + 3 types], `row_statistics` of each sentence. A score with an empty denominator is 0.
    """
    total = statistics.sum(axis=0)
    counts = total[_WORD_COLUMNS:].reshape(-1, _ENTITY_COLUMNS).sum(axis=0).tolist()
    scores = precision_recall_f1(*counts)
    words, right_words = float(total[0]), float(total[1])
    return {"entity_f1": scores.pop("f1"), **scores, "accuracy": right_words / words if words else 0.0}


def by_type(statistics: NDArray[np.float64], types: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return `precision`, `recall`, `f1` and `support` (number of gold entities) of each type."""
    return scores_by_label(statistics.sum(axis=0)[_WORD_COLUMNS:].reshape(-1, _ENTITY_COLUMNS), types)
