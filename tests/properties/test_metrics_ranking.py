"""Scores of rankings equal trec_eval's."""

from __future__ import annotations

import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.tasks.metrics import ranking

MEASURES = {"ndcg_cut_10", "recip_rank", "recall_100", "recall_5", "map"}
# Ids whose order as texts is not their order as numbers, one of them outside of ASCII.
IDS = [*(str(number) for number in range(1, 24)), "a", "B", "é", "中", "doc 1", "Doc"]


def ours(run: dict[str, float], judged: dict[str, int]) -> dict[str, float]:
    ids = list(run)
    ranked = [judged.get(ids[place], 0) for place in ranking.trec_order(ids, list(run.values()))]
    relevances = list(judged.values())
    num_relevant = ranking.num_relevant(relevances)
    return {
        "ndcg_cut_10": ranking.ndcg(ranked, relevances, 10),
        "recip_rank": ranking.reciprocal_rank(ranked),
        "recall_100": ranking.recall(ranked, num_relevant, 100),
        "recall_5": ranking.recall(ranked, num_relevant, 5),
        "map": ranking.ranked_precision(ranked, num_relevant),
    }


def theirs(run: dict[str, float], judged: dict[str, int]) -> dict[str, float]:
    found = pytrec_eval.RelevanceEvaluator({"q": judged}, MEASURES).evaluate({"q": run})
    return found["q"]


# Few different scores, so that many are equal; some so close that 32 bits hold them equal.
scores = st.one_of(
    st.sampled_from([0.0, -1.0, 1.0, 0.5, 1.0 + 1e-12, 3e-9]), st.floats(-100, 100, allow_nan=False, width=32)
)
runs = st.dictionaries(st.sampled_from(IDS), scores, min_size=1, max_size=len(IDS))
# pytrec_eval writes outside of its memory where judgements are negative and none is positive; see below for those.
judgements = st.dictionaries(st.sampled_from(IDS), st.integers(-2, 4), min_size=1, max_size=len(IDS)).filter(
    lambda judged: max(judged.values()) > 0
)


@given(runs, judgements)
@settings(max_examples=300)
def test_every_score_is_that_of_trec_eval(run, judged):
    assert ours(run, judged) == pytest.approx(theirs(run, judged), abs=1e-9)


def test_more_than_a_hundred_documents_are_cut_as_trec_eval_cuts_them():
    run = {f"d{number}": float(-(number // 7)) for number in range(150)}
    judged = {f"d{number}": number % 3 - 1 for number in range(0, 150, 2)} | {"missed": 2}
    assert ours(run, judged) == pytest.approx(theirs(run, judged))


def test_a_query_without_relevant_documents_scores_nothing():
    assert ours({"a": 1.0}, {"a": 0, "b": -1}) == dict.fromkeys(MEASURES, 0.0)
