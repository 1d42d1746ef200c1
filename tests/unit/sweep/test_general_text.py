"""What benchmarks/general_text.py says of scores and recipes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import general_text_page as pages


def row(metrics: dict[str, list[float]], others: dict[str, float]) -> dict[str, Any]:
    """What a set of GLUE has: a metric's value for each seed; `others` are the baselines, with the same
    score on dev as on test, which the encoder is clearly below."""
    scores = [
        {"split": "test", "metric": metric, "mean": sum(values) / 3, "std": 0.01, "seeds": values, "trivial": 0.5}
        for metric, values in metrics.items()
    ]
    baselines = {
        other: {"dev": value, "scores": {"test": dict.fromkeys(metrics, value)}} for other, value in others.items()
    }
    comparisons = {other: {"difference": -0.08, "interval": [-0.10, -0.06]} for other in others}
    return {
        "name": "set", "title": "SET", "note": "", "scores": scores, "train_rows": 5000, "test_rows": 400,
        "num_seeds": 3, "num_diverged": 0, "minutes": 1.0, "baselines": baselines, "metric": list(metrics)[-1],
        "dev": [0.7] * 3, "interval": [0.69, 0.73], "comparisons": comparisons,
    }  # fmt: skip


def test_each_opponent_has_its_own_verdict() -> None:
    metrics = {"pearson": [0.72, 0.74, 0.70], "spearman": [0.71, 0.73, 0.69]}
    pairs = row(metrics, {"mean": 0.0, "word_ngrams": 0.3, "pair_features": 0.8})
    opponents = pages.set_content(pairs, [0.70, 0.69])["opponents"]
    verdicts = {name: one["over_seeds"]["verdict"] for name, one in opponents.items()}
    assert verdicts == {"goal": "not shown", "ngrams": "above", "pair_features": "below"}
    assert opponents["goal"]["over_seeds"]["difference"] == pytest.approx(0.02)  # of the means of the metrics
    assert opponents["pair_features"]["over_rows"]["verdict"] == "below"
    single = row({"accuracy": [0.839, 0.840, 0.841]}, {"majority": 0.5, "word_ngrams": 0.82})
    assert "pair_features" not in pages.set_content(single, [0.82])["opponents"]


def test_the_committed_pages_are_what_the_records_say() -> None:
    records = pages.kept_records(pages.RESULTS)
    assert records
    for name in records:
        assert (pages.RESULTS / f"{name}.md").read_text(encoding="utf-8") == pages.page(name, records)
