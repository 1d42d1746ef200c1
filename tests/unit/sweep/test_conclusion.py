"""One sentence for a task: won, lost, or not to be told; alone, and combined where there is such an arm."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bertline.foundation.verdicts import Measured
from bertline.sweep.results import Comparisons, conclusion, noise_of_difference, strongest_opponent, winner_part

ROWS = np.linspace(-0.2, 0.2, 30)


def of(score, num_seeds=3, *, repeatable=False):
    scores = score + 0.004 * (np.arange(num_seeds) - (num_seeds - 1) / 2)
    return Measured(scores=scores, blocks=scores[:, None] + ROWS, repeatable=repeatable)


def concluded(encoder, *, bm25=0.5, combined=None, num_seeds=3, num_diverged=0):
    systems = {"encoder": of(encoder, num_seeds), "bm25": of(bm25, 1, repeatable=True)}
    arms = {"encoder": {"test_mean": encoder, "test_std": 0.004 if num_seeds > 1 else None}}
    arms["encoder"] |= {"seeds": [{}] * num_seeds, "num_diverged": num_diverged}
    if combined is not None:
        systems["combined"] = of(combined, num_seeds)
        arms["combined"] = {"test_mean": combined, "test_std": 0.004}
    baselines = {
        "bm25": {"title": "BM25", "dev": 0.6, "test": bm25},
        "weak": {"title": "weak", "dev": 0.1, "test": 0.9},
    }
    result = {"task": "docs_search", "metric": "ndcg@10", "arms": arms, "baselines": baselines}
    return conclusion(result, Comparisons(systems))


@pytest.mark.parametrize(
    ("encoder", "said"),
    [
        (0.6, "On docs_search the encoder wins: nDCG@10 0.600 ± 0.004 against 0.500 for BM25, the strongest simple"),
        (0.4, "On docs_search the encoder loses: nDCG@10 0.400 ± 0.004 against 0.500 for BM25"),
        (0.501, "On docs_search the encoder has nDCG@10 0.501 ± 0.004 against 0.500 for BM25, the strongest simple"),
    ],
)
def test_the_sentence_says_whether_the_encoder_beats_the_opponent_that_is_strongest_on_dev(encoder, said):
    found = concluded(encoder)
    assert found["opponent"] == "bm25"
    assert found["sentence"].startswith(said)
    if encoder == 0.4:  # the typographic minus, in the interval too
        assert re.search(r"\(difference −0\.100, 95 % interval −0\.\d{3} to −0\.\d{3}", found["sentence"])
    # The interval of what is not shown is left to the report.
    said = "; 30 rows are too few for a verdict (difference +0.001; it would have been seen from 0.1"
    assert (said in found["sentence"]) is ("interval" not in found["sentence"]) is (encoder == 0.501)


def test_the_interval_of_a_score_ends_where_the_metric_does():
    comparisons = Comparisons({"all right": of(0.99), "all wrong": of(0.01)})
    low, high = comparisons.interval("all right", "accuracy")
    assert (0.9 < low < 0.99, high) == (True, 1.0)
    assert comparisons.interval("all right", "pearson") == (low, high)
    assert comparisons.interval("all wrong", "accuracy")[0] == 0.0
    assert comparisons.interval("all wrong", "pearson")[0] < 0.0
    assert comparisons.interval("all wrong", "negative_log_loss")[1] == 0.0


def test_the_encoder_is_judged_alone_and_combined():
    said = concluded(0.4, combined=0.6)["sentence"]
    assert "the encoder alone loses: nDCG@10 0.400" in said
    assert "the encoder combined with BM25 wins: 0.600 ± 0.004" in said


def test_one_seed_says_neither():
    found = concluded(0.9, num_seeds=1)
    assert "one seed" in found["sentence"]
    assert " win" not in found["sentence"]
    assert set(found["encoder"]) == {"difference"}


def test_a_score_that_is_no_number_is_not_the_strongest_opponent():
    assert strongest_opponent({"a": {"dev": float("nan")}, "b": {"dev": -2.0}}) == "b"


def won(encoder, ngrams, *, other=0.1, saved="ngrams", combined=None, noise=0.0):
    arms = {"encoder": {"title": "mine", "dev_mean": encoder, "seeds": [{}], "ms_per_row": 2.0}}
    arms["random_weights"] = {"title": "random", "dev_mean": 0.99, "seeds": [{}]}
    if combined is not None:
        arms["combined"] = {"title": "encoder and BM25 combined", "dev_mean": combined, "seeds": [{}]}
    baselines = {"other": {"title": "BM25", "dev": other}, "ngrams": {"title": "character n-grams", "dev": ngrams}}
    if saved:
        baselines[saved]["ms_per_row"] = 0.05
    result = {"task": "sst2", "metric": "accuracy", "folds": False, "arms": arms, "baselines": baselines}
    found = winner_part(result, saved, noise)
    return found["name"], found["sentence"]


def test_dev_chooses_what_is_exported_and_of_equals_the_cheaper():
    assert won(0.65, 0.8) == (
        "ngrams",
        "Exported: character n-grams, which does better on dev than the encoder (accuracy 0.800 against 0.650) and is "
        "40 times as fast (20,000 rows a second against 500); the encoder is in sst2-encoder.",
    )
    name, sentence = won(0.1 + 0.2, 0.3)  # equal but for rounding
    assert name == "ngrams" and "ties with the encoder on dev (accuracy 0.300), is the cheaper of the two" in sentence
    assert won(0.81, 0.8) == ("encoder", "")
    assert won(0.65, float("nan")) == ("encoder", "")


def test_a_simple_method_must_be_ahead_by_more_than_the_noise():
    assert won(0.65, 0.8, noise=0.1)[0] == "ngrams"
    assert won(0.75, 0.8, noise=0.1) == (
        "encoder",
        "Exported: the encoder; character n-grams is no better on dev beyond the noise (accuracy 0.800 against 0.750).",
    )
    assert won(0.75, 0.75, noise=0.1)[0] == "encoder"
    assert won(0.75, 0.6, noise=0.1) == ("encoder", "")


def test_the_noise_is_the_standard_error_of_a_difference_and_none_where_the_same_rows_are_right():
    right = np.random.default_rng(0).random((2, 400)) < 0.8
    first, second = (
        Measured(scores=np.array([row.mean()]), blocks=row[None].astype(float), repeatable=True) for row in right
    )
    differences = right[0].astype(float) - right[1]
    assert noise_of_difference(first, second) == pytest.approx(differences.std(ddof=1) / 20, rel=0.1)
    assert noise_of_difference(first, first) == 0.0
