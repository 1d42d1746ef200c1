"""What benchmarks/general_text.py says of scores and recipes, and how processor time is summed over processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import general_text_page as pages


def row(
    name: str,
    title: str,
    metrics: dict[str, list[float]],
    others: dict[str, float],
    *,
    dev: list[float] | None = None,
    shown: tuple[float, float] | None = (-0.05, 0.05),
) -> dict[str, Any]:
    """A row of the table of `bertline glue`: a metric's value for each seed; `others` are the baselines, with
    the same score on dev as on test, and `shown` is the interval of the encoder's difference from each of them."""
    seeds = len(next(iter(metrics.values())))
    scores = [
        {
            "split": "test", "metric": metric, "mean": sum(values) / seeds, "std": 0.01 if seeds > 1 else None,
            "seeds": values, "trivial": 0.5,
        }
        for metric, values in metrics.items()
    ]  # fmt: skip
    baselines = {
        other: {"dev": value, "scores": {"test": dict.fromkeys(metrics, value)}} for other, value in others.items()
    }
    difference = {"difference": 0.0} if shown is None else {"difference": sum(shown) / 2, "interval": list(shown)}
    metric = list(metrics)[-1]
    mean = scores[-1]["mean"]
    return {
        "name": name, "title": title, "note": "", "scores": scores, "train_rows": 5000, "test_rows": 400,
        "num_seeds": seeds, "num_diverged": 0, "minutes": 1.0, "baselines": baselines, "metric": metric,
        "dev": dev or [0.5] * seeds, "interval": None if shown is None else [mean - 0.02, mean + 0.02],
        "comparisons": dict.fromkeys(others, difference),
    }  # fmt: skip


GOAL = {"SST-2": [0.82], "STS-B": [0.70, 0.69], "QNLI": [0.47]}
SST2 = row("sst2", "SST-2", {"accuracy": [0.839, 0.840, 0.841]}, {"majority": 0.5, "word_ngrams": 0.82}, dev=[0.9] * 3)
STSB = row(
    "stsb",
    "STS-B",
    {"pearson": [0.72, 0.74, 0.70], "spearman": [0.71, 0.73, 0.69]},
    {"mean": 0.0, "word_ngrams": 0.3, "pair_features": 0.8},
    dev=[0.7] * 3,
    shown=(-0.10, -0.06),
)


def record(*rows: dict[str, Any], recipe: tuple[str, ...] = ()) -> dict[str, Any]:
    training = {
        "steps": 1000, "num_tokens": 6e6, "val/mlm_loss": 3.5, "processor_s": 5400, "processor_limit_s": 7200.0
    }  # fmt: skip
    sets = {one["name"]: pages.set_content(one, GOAL.get(one["title"])) for one in rows}
    said = {"average": 0.5, "recipe": list(recipe), "device": "a processor", "date": "2026-11-25"}
    return {**said, "sets": sets, "pretraining": training}


def test_each_opponent_has_its_own_verdict() -> None:
    opponents = pages.set_content(STSB, GOAL["STS-B"])["opponents"]
    assert {name: one["over_seeds"]["verdict"] for name, one in opponents.items()} == {
        "goal": "not shown", "ngrams": "above", "pair_features": "below"
    }  # fmt: skip
    assert opponents["goal"]["over_seeds"]["difference"] == pytest.approx(0.02)  # of the means of the metrics
    assert opponents["pair_features"]["over_rows"]["verdict"] == "below"
    assert "pair_features" not in pages.set_content(SST2, GOAL["SST-2"])["opponents"]


def test_dev_chooses_the_recipe_whatever_test_says() -> None:
    better_on_test = record({**SST2, "dev": [0.80] * 3}, STSB)
    worse = row("sst2", "SST-2", {"accuracy": [0.7, 0.7, 0.7]}, {"word_ngrams": 0.82}, dev=[0.92] * 3)
    better_on_dev = record(worse, recipe=("sweep.fine_tuning.learning_rate=3e-4",))
    both = {"wiki_mini_glue": better_on_test, "wiki_mini_glue_3e-4": better_on_dev}
    found = pages.recipes_on_dev(both)
    assert (found["sets"], found["chosen"]) == (["sst2"], "wiki_mini_glue_3e-4")
    said = pages.page("wiki_mini_glue", both)
    assert "2 recipes were compared, on dev alone, by the mean over the sets; this page's is not the one that" in said
    assert "| fixed recipe | 0.800 | 0.800 |\n| learning_rate=3e-4, chosen | 0.920 | 0.920 |" in said
    assert "2 were compared, as said above" in said
    assert "nothing was tuned" not in said
    assert "this page's is the one that dev chooses" in pages.page("wiki_mini_glue_3e-4", both)


def test_the_committed_pages_are_what_the_records_say() -> None:
    records = pages.kept_records(pages.RESULTS)
    assert records
    for name in records:
        assert (pages.RESULTS / f"{name}.md").read_text(encoding="utf-8") == pages.page(name, records)
