"""The table of GLUE scores: one line per data set, with its baselines, and the average."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertline.foundation.formats import with_spread
from bertline.sweep.glue_sets import FoundSet, Score

_TRIVIAL = ("majority", "mean")
_NOT_AVERAGED_BY_BERT = "wnli"


@dataclass(frozen=True, kw_only=True, slots=True)
class GlueOutcome:
    """Outcome of one data set: a sweep's result.json, or why there is none."""

    found: FoundSet
    result: Mapping[str, Any] | None
    problem: str | None = None


def glue_rows(outcomes: Sequence[GlueOutcome]) -> list[dict[str, Any]]:
    """Return the table as plain data, one row per data set; a set that failed has its `problem` and no scores."""
    return [_row(outcome) for outcome in outcomes]


def glue_average(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | int | None]:
    """Return the mean of the sets' scores; a set with two metrics counts as their mean (arXiv 1804.07461, section 3).

    Returns:
        `average` over all sets with a score, `without_wnli` as in the BERT paper (both None if there is no set) and
        `num_sets`.
    """
    scored = {row["name"]: statistics.fmean(one["mean"] for one in row["scores"]) for row in rows if row["scores"]}
    others = [score for name, score in scored.items() if name != _NOT_AVERAGED_BY_BERT]
    return {
        "average": statistics.fmean(scored.values()) if scored else None,
        "without_wnli": statistics.fmean(others) if others else None,
        "num_sets": len(scored),
    }


def glue_markdown(rows: Sequence[Mapping[str, Any]], absent: Sequence[str], *, encoder: str) -> str:
    """Return the table and its notes as Markdown."""
    random = any(one["random_weights"] for row in rows for one in row["scores"])
    head = ["set", "metric", encoder, "trivial", "strongest simple", *(["random weights"] if random else [])]
    head += ["train rows", "test rows", "minutes"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        if row["problem"]:
            lines.append([row["title"], "failed", *["–"] * (len(head) - 2)])
            continue
        scores = row["scores"]
        cells = [row["title"], " / ".join(one["label"] for one in scores), _cells(scores)]
        cells += [_cells([one[name] for one in scores]) for name in ("trivial", "simple")]
        cells += [_cells([one["random_weights"] for one in scores])] if random else []
        lines.append([*cells, f"{row['train_rows']:,}", f"{row['test_rows']:,}", f"{row['minutes']:.1f}"])
    average = glue_average(rows)
    if average["average"] is not None:
        said = f"{average['average']:.3f}"
        if average["without_wnli"] is not None and average["without_wnli"] != average["average"]:
            said += f" ({average['without_wnli']:.3f} without WNLI)"
        lines.append([f"average of {average['num_sets']}", "", said, *[""] * (len(head) - 3)])
    table = "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines)
    return f"{table}\n\n{_notes(rows, absent)}\n"


def _row(outcome: GlueOutcome) -> dict[str, Any]:
    glue_set, result = outcome.found.glue_set, outcome.result
    row: dict[str, Any] = {
        "name": glue_set.name,
        "title": glue_set.title,
        "note": outcome.found.layout.note,
        "problem": outcome.problem,
        "scores": [],
    }
    if result is None:
        return row
    arms = [arm for arm in result["arms"].values() if arm]
    seconds = [run["time_s"] or 0.0 for arm in arms for run in (*arm["trials"], *arm["seeds"])]
    return {
        **row,
        "scores": [_score(result, score) for score in glue_set.scores],
        "train_rows": result["rows"]["train"],
        "test_rows": sum(result["rows"][split] for split in dict.fromkeys(split for split, _ in glue_set.scores)),
        "num_seeds": len(result["arms"]["encoder"]["seeds"]),
        "num_diverged": result["arms"]["encoder"]["num_diverged"],
        "minutes": sum(seconds) / 60,
    }


def _score(result: Mapping[str, Any], score: Score) -> dict[str, Any]:
    split, metric = score
    encoder, baselines = result["arms"]["encoder"], result["baselines"]
    several = len(encoder["seeds"]) > 1
    mean_and_std = encoder["scores"][split][metric]
    other = result["arms"].get("random_weights")
    strongest = sorted(baselines, key=lambda name: -baselines[name]["dev"])[:1]
    return {
        "split": split,
        "metric": metric,
        "label": metric if split == "test" else f"{metric} ({split.removeprefix('test_')})",
        "mean": mean_and_std["mean"],
        "std": mean_and_std["std"] if several else None,
        "trivial": _of_baseline(baselines, _TRIVIAL, split, metric),
        "simple": _of_baseline(baselines, strongest, split, metric),
        "random_weights": dict(other["scores"][split][metric]) if other else None,
    }


def _of_baseline(baselines: Mapping[str, Any], names: Sequence[str], split: str, metric: str) -> float | None:
    return next((baselines[name]["scores"][split][metric] for name in names if name in baselines), None)


def _cells(values: Sequence[Any]) -> str:
    return " / ".join(_number(value) for value in values)


def _number(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    return with_spread(value["mean"], value["std"])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _notes(rows: Sequence[Mapping[str, Any]], absent: Sequence[str]) -> str:
    seeds = sorted({row["num_seeds"] for row in rows if row["scores"]})
    spread = f"mean ± standard deviation over {' or '.join(map(str, seeds))} seeds" if seeds != [1] else "one seed"
    notes = [
        f"Scores: {spread}. GLUE's own tests have no labels: where nothing else is said, its dev is the test, and what "
        "is chosen is chosen on a tenth of train. `trivial` gives the most frequent label, or the mean; `strongest "
        "simple` is the simple method that was best on dev.",
        *(f"{row['title']}: {row['note']}." for row in rows if row["note"]),
        *(
            f"{row['title']}: the mean is that of {row['num_seeds']}, as {row['num_diverged']} more diverged."
            for row in rows
            if row["scores"] and row["num_diverged"]
        ),
        *(f"{row['title']} failed: {row['problem']}" for row in rows if row["problem"]),
    ]
    if absent:
        notes.append(f"Not there: {', '.join(absent)}.")
    return "\n".join(f"- {_cell(note)}" for note in notes)
