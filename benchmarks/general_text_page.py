"""What the records of benchmarks/general_text.py say: opponents with a verdict each, and the table of the page."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
from scipy.special import stdtrit

from bertline.foundation.formats import markdown_table, signed, with_spread
from bertline.foundation.verdicts import SIGNIFICANT

RESULTS = Path(__file__).resolve().parent / "results"
NAME = "wiki_mini_glue"
"""First part of the names of all records, one for each recipe."""
GOAL: Mapping[str, Sequence[float]] = {
    "wnli": [0.211], "rte": [0.516], "mrpc": [0.807, 0.693], "stsb": [0.701, 0.688], "cola": [0.119], "sst2": [0.823],
    "qnli": [0.466],
}  # fmt: skip
"""Scores of TF-IDF when the goal was set, one for each metric: linear models on n-grams of words (each text of a pair
has its own columns), on STS-B also on the cosine of the TF-IDF vectors of the two texts."""


def set_content(glue_set: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record has of a set.

    Args:
        glue_set: Its entry in the table of `bertline glue`.
        result: The sweep's result.json.

    Returns:
        Rows, seeds and minutes; `metrics`, and for each of `encoder`, `std` (None for one seed) and `trivial` a list of
        scores; `dev`, the score of each seed by `dev_metric`; and `opponents`, each with `scores` and verdicts
        `over_seeds` (see `over_seeds`) and `over_rows`, the sweep's own, which counts the noise of seeds and rows.
    """
    encoder, baselines = result["arms"]["encoder"], result["baselines"]
    measures = [(split, metric) for split, metrics in glue_set["scores"].items() for metric in metrics]
    metrics = [metric for _, metric in measures]
    seconds = [run["time_s"] or 0.0 for arm in result["arms"].values() for run in (*arm["trials"], *arm["seeds"])]

    def scores_of(found: Mapping[str, Any]) -> list[Any]:
        return [found["scores"][split][metric] for split, metric in measures]

    opponents: dict[str, Any] = {}
    if goal := GOAL.get(glue_set["name"]):
        position = metrics.index(result["metric"]) if result["metric"] in metrics else 0
        ends = [end - goal[position] for end in encoder["test_interval"] or ()]  # no rows of it were kept
        opponents["goal"] = {"scores": list(goal), "over_rows": _judged(statistics.fmean(ends), ends) if ends else None}
    for name, baseline in baselines_of(baselines).items():
        comparison = result["comparisons"][baseline]
        interval = comparison.get("interval")
        opponents[name] = {
            "baseline": baseline,
            "scores": scores_of(baselines[baseline]),
            "over_rows": interval and _judged(comparison["difference"], interval),
        }
    means = [statistics.fmean(scores_of(seed)) for seed in encoder["seeds"]]
    for one in opponents.values():
        one["over_seeds"] = over_seeds(means, statistics.fmean(one["scores"]))
    return {
        **{key: glue_set.get(key, "") for key in ("title", "note")},
        "train_rows": result["rows"]["train"],
        "test_rows": sum(result["rows"][split] for split in glue_set["scores"]),
        "num_seeds": len(encoder["seeds"]),
        "num_diverged": encoder["num_diverged"],
        "minutes": sum(seconds) / 60,
        "metrics": metrics,
        "encoder": [one["mean"] for one in scores_of(encoder)],
        "std": [one["std"] for one in scores_of(encoder)],
        "trivial": scores_of(next(baselines[name] for name in ("majority", "mean") if name in baselines)),
        "dev_metric": result["metric"],
        "dev": [seed["dev"] for seed in encoder["seeds"]],
        "opponents": opponents,
    }


def baselines_of(baselines: Mapping[str, Any]) -> dict[str, str]:
    """Return the sweep's baseline for each opponent: of n-grams the one that is best on dev; pairs have pair features.

    >>> baselines_of({"word_ngrams": {"dev": 0.6}, "char_ngrams": {"dev": 0.7}, "majority": {"dev": 0.9}})
    {'ngrams': 'char_ngrams'}
    """
    ngrams = [name for name in baselines if name.endswith("_ngrams")]
    found = {"ngrams": max(ngrams, key=lambda name: baselines[name]["dev"])} if ngrams else {}
    return found | {name: name for name in ("pair_features",) if name in baselines}


def over_seeds(scores: Sequence[float], other: float) -> dict[str, Any]:
    """Compare the seeds' scores with one score of an opponent, on the same rows, by Student's t.

    Returns:
        `difference` of the mean from the opponent, its 95 % `interval` and the `verdict` (`above`, `below` or `not
        shown`); with one seed only the difference.

    >>> over_seeds([0.80, 0.82, 0.81], 0.75)["verdict"], over_seeds([0.80, 0.90], 0.75)["verdict"], over_seeds([1.0], 0)
    ('above', 'not shown', {'difference': 1.0})
    """
    difference = statistics.fmean(scores) - other
    if len(scores) < 2:
        return {"difference": difference}
    error = statistics.stdev(scores) / math.sqrt(len(scores))
    reach = float(stdtrit(len(scores) - 1, 1 - SIGNIFICANT / 2)) * error
    return _judged(difference, (difference - reach, difference + reach))


def _judged(difference: float, interval: Sequence[float]) -> dict[str, Any]:
    low, high = interval
    verdict = "above" if low > 0 else "below" if high < 0 else "not shown"
    return {"difference": difference, "interval": [low, high], "verdict": verdict}


def documented() -> str:
    """Return the table of the documentation: the recipe that dev chooses next to TF-IDF and pair features."""
    paths = sorted(RESULTS.glob(f"{NAME}*.json"), key=lambda path: (len(path.stem), path.stem))  # the fixed one first
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    shared = set[str].intersection(*(set(one["sets"]) for one in records.values()))
    dev = {
        name: statistics.fmean(statistics.fmean(one["sets"][each]["dev"]) for each in sorted(shared))
        for name, one in records.items()
    }
    chosen = max(dev, key=lambda name: dev[name])
    titles = {
        name: ", ".join(change.removeprefix("sweep.fine_tuning.") for change in one["recipe"]) or "fixed recipe"
        for name, one in records.items()
    }
    record, others = records[chosen], [title for name, title in titles.items() if name != chosen]
    head = "difference (95 % interval)"
    rows = []
    for one in record["sets"].values():
        cells = []
        for name in ("goal", "pair_features"):
            found = one["opponents"].get(name)
            cells += ["–", ""] if found is None else [_joined(found["scores"]), _said(found)]
        ours = " / ".join(with_spread(*pair) for pair in zip(one["encoder"], one["std"], strict=True))
        rows.append([f"{one['title']}, {' / '.join(one['metrics'])}", ours, *cells])
    training = record["pretraining"]
    return "\n".join(
        (
            markdown_table(["test, mean over seeds", "wiki_mini", "TF-IDF", head, "pair features", head], rows),
            "",
            *_known_sentences(record),
            f"{training['processor_s'] / 3600:.2f} hours of processor time, held-out MLM loss "
            f"{training['val/mlm_loss']:.2f} nats. Recipe: `{titles[chosen]}`"
            + (f", which dev chose over: {', '.join(others)}." if others else ", nothing tuned."),
            "`above` and `below`: beyond the noise of seeds and rows. TF-IDF: as when the goal was set, of which "
            "no rows were kept; pair features: what the two texts share, added later.",
        )
    )


def _known_sentences(record: Mapping[str, Any]) -> Sequence[str]:
    """Return lines on the test rows that share sentences with train, for the sets where they were looked for."""
    lines = []
    for name, found in record.get("unseen_rows", {}).items():
        one, ours, theirs = record["sets"][name], found["encoder"], found["pair_features"]
        leads = statistics.fmean(ours) > statistics.fmean(theirs)
        lines.append(
            f"{one['title']}: {found['rows_shared_with_train']} of {one['test_rows']:,} test rows share a sentence "
            f"with a train row. On the {found['rows']:,} that share none with train or dev, wiki_mini has "
            f"{_joined(ours)} (pretraining seed {found['pretraining_seed']}) and pair features {_joined(theirs)}"
            + ("." if leads else ": any lead over these is one of known sentences.")
        )
    return lines


def _said(opponent: Mapping[str, Any]) -> str:
    verdict = opponent["over_rows"] or opponent["over_seeds"]
    if "interval" not in verdict:
        return f"{signed(verdict['difference'])} (one seed)"
    low, high = map(signed, verdict["interval"])
    return f"{signed(verdict['difference'])} ({low} to {high}): {verdict['verdict']}"


def _joined(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.3f}" for value in values)
