"""What benchmarks/general_text.py says of scores and recipes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import general_text_page as pages


def content(name: str, metrics: dict[str, list[float]], others: dict[str, float]) -> dict[str, Any]:
    """What a record has of a set: a metric's value for each seed; `others` are the baselines, with the same score on
    dev as on test, which the encoder is clearly below."""
    seeds = [
        {"dev": 0.7, "time_s": 1.0, "scores": {"test": dict(zip(metrics, values, strict=True))}}
        for values in zip(*metrics.values(), strict=True)
    ]
    means = {metric: {"mean": sum(values) / 3, "std": 0.01} for metric, values in metrics.items()}
    encoder = {"scores": {"test": means}, "seeds": seeds, "trials": [], "test_interval": [0.69, 0.73]}
    baselines = {
        other: {"dev": value, "scores": {"test": dict.fromkeys(metrics, value)}} for other, value in others.items()
    }
    result = {
        "arms": {"encoder": {**encoder, "num_diverged": 0}}, "baselines": baselines, "metric": list(metrics)[-1],
        "comparisons": {other: {"difference": -0.08, "interval": [-0.10, -0.06]} for other in others},
        "rows": {"train": 5000, "test": 400},
    }  # fmt: skip
    return pages.set_content({"name": name, "title": "SET", "scores": {"test": list(metrics)}}, result)


def test_each_opponent_has_its_own_verdict() -> None:
    metrics = {"pearson": [0.72, 0.74, 0.70], "spearman": [0.71, 0.73, 0.69]}
    opponents = content("stsb", metrics, {"mean": 0.0, "word_ngrams": 0.3, "pair_features": 0.8})["opponents"]
    verdicts = {name: one["over_seeds"]["verdict"] for name, one in opponents.items()}
    assert verdicts == {"goal": "not shown", "ngrams": "above", "pair_features": "below"}
    assert opponents["goal"]["over_seeds"]["difference"] == pytest.approx(0.0205)  # of the means of the metrics
    assert opponents["pair_features"]["over_rows"]["verdict"] == "below"
    single = content("sst2", {"accuracy": [0.839, 0.840, 0.841]}, {"majority": 0.5, "word_ngrams": 0.82})
    assert single["opponents"].keys() == {"goal", "ngrams"} and single["trivial"] == [0.5]
