"""Scores of entities as in seqeval's default mode: an entity is correct if its type, first word and last word are
correct; averages are micro, over all entities. The CoNLL-2000 script `conlleval` counts in the same way.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertline.tasks.entities import entities
from bertline.tasks.metrics.classification import precision_recall_f1, scores_by_label

_WORD_COLUMNS = 2
_ENTITY_COLUMNS = 3


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


def entity_scores(statistics: NDArray[np.float64]) -> dict[str, float]:
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
