"""GLUE: the data sets, with their known file layouts below a common folder, and the table of their scores.

References: Wang et al., arXiv 1804.07461, section 3; for WNLI, Devlin et al., arXiv 1810.04805, section 4.1.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from bertline.foundation.errors import ConfigError
from bertline.foundation.formats import markdown_table, with_spread

_SETS = yaml.safe_load(files("bertline.sweep").joinpath("glue.yaml").read_text(encoding="utf-8"))
GLUE: dict[str, dict[str, Any]] = {one["name"]: one for one in _SETS}
"""The nine data sets by the name of their task in conf/task, as in glue.yaml: those with the fewest rows first."""


@dataclass(frozen=True, slots=True)
class FoundSet:
    """A data set that was found: the name of its task, its title, scores and layout of `GLUE`, and its folder."""

    name: str
    title: str
    scores: Sequence[str | Mapping[str, str]]
    layout: Mapping[str, Any]
    path: Path


def found_sets(data: Path, wanted: Sequence[str] | None) -> tuple[list[FoundSet], list[str]]:
    """Return the wanted data sets (None: all) in a folder, smallest first, and the titles of all sets that it lacks.

    Raises:
        ConfigError: The folder or a wanted set is missing, no set was found, or a name is unknown.
    """
    for name in wanted or ():
        if name not in GLUE:
            raise ConfigError(f"sets names {name!r}; GLUE has {', '.join(GLUE)}.")
    if not data.is_dir():
        raise ConfigError(f"data is {data}, and no folder is there. Give the folder that has SST-2, CoLA, ... in it.")
    found = {name: place for name, one in GLUE.items() if (place := _place_of(one, data)) is not None}
    lacking = [name for name in wanted or () if name not in found]
    if lacking or not found:
        layouts = [layout for name in lacking or GLUE for layout in GLUE[name]["layouts"]]
        known = " or ".join(f"{layout['folders'][0]}/{{{','.join(layout['files'])}}}" for layout in layouts)
        raise ConfigError(f"{data} does not have {', '.join(lacking or GLUE)}. Looked for: {known}.")
    absent = [one["title"] for name, one in GLUE.items() if name not in found]
    return [place for name, place in found.items() if wanted is None or name in wanted], absent


def task_of(found: FoundSet, task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's composed configuration, changed to read the set where it was found.

    All sets use the recipe of the sweep: a task's own number of trials and training sizes are removed.
    """
    source = {**task["source"], **found.layout.get("source", {}), "path": str(found.path)}
    return {**task, "source": source, "num_trials": None, "label_efficiency_rows": []}


def _place_of(glue_set: Mapping[str, Any], data: Path) -> FoundSet | None:
    for layout in glue_set["layouts"]:
        for folder in layout["folders"]:
            if all((data / folder / name).is_file() for name in layout["files"]):
                path = (data / folder).resolve()
                return FoundSet(glue_set["name"], glue_set["title"], glue_set["scores"], layout, path)
    return None


def glue_row(found: FoundSet, result: Mapping[str, Any] | None, problem: str | None = None) -> dict[str, Any]:
    """Return the row of the table, as plain data, of a sweep's result.json, or of the `problem` why there is none."""
    row = {"name": found.name, "title": found.title, "note": found.layout.get("note", ""), "problem": problem}
    if result is None:
        return {**row, "scores": []}
    encoder, arms = result["arms"]["encoder"], [arm for arm in result["arms"].values() if arm]
    seconds = [run["time_s"] or 0.0 for arm in arms for run in (*arm["trials"], *arm["seeds"])]
    scores = [one if isinstance(one, dict) else {"test": one} for one in found.scores]
    pairs = [pair for one in scores for pair in one.items()]
    return {
        **row,
        "scores": [_score(result, *pair) for pair in pairs],
        "train_rows": result["rows"]["train"],
        "test_rows": sum(result["rows"][split] for split in dict(pairs)),
        "num_seeds": len(encoder["seeds"]),
        "num_diverged": encoder["num_diverged"],
        # The intervals and comparisons, on test, count the noise of seeds and rows.
        "metric": result["metric"],
        "dev": [seed["dev"] for seed in encoder["seeds"]],
        "interval": encoder["test_interval"],
        "comparisons": {name: result["comparisons"][name] for name in result["baselines"]},
        "baselines": {name: {key: one[key] for key in ("dev", "scores")} for name, one in result["baselines"].items()},
        "minutes": sum(seconds) / 60,
    }


def glue_average(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | int | None]:
    """Return the mean of the sets' scores; a set with two metrics counts as their mean (arXiv 1804.07461, section 3).

    Returns:
        `average` over all sets with a score, `without_wnli` as in the BERT paper (both None if there is no set) and
        `num_sets`.
    """
    scored = {row["name"]: statistics.fmean(one["mean"] for one in row["scores"]) for row in rows if row["scores"]}
    others = [score for name, score in scored.items() if name != "wnli"]
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
    lines: list[list[str]] = []
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
    return f"{markdown_table(head, lines)}\n\n{_notes(rows, absent)}\n"


def _score(result: Mapping[str, Any], split: str, metric: str) -> dict[str, Any]:
    encoder, baselines = result["arms"]["encoder"], result["baselines"]
    other = result["arms"].get("random_weights")
    known = {name: one["scores"][split][metric] for name, one in baselines.items()}
    strongest = max(baselines, key=lambda name: baselines[name]["dev"], default="none")
    return {
        "split": split,
        "metric": metric,
        "label": metric if split == "test" else f"{metric} ({split.removeprefix('test_')})",
        "mean": encoder["scores"][split][metric]["mean"],
        "std": encoder["scores"][split][metric]["std"] if len(encoder["seeds"]) > 1 else None,
        "seeds": [seed["scores"][split][metric] for seed in encoder["seeds"]],
        "trivial": known.get("majority", known.get("mean")),
        "simple": known.get(strongest),
        "random_weights": dict(other["scores"][split][metric]) if other else None,
    }


def _cells(values: Sequence[float | Mapping[str, Any] | None]) -> str:
    means = [value if isinstance(value, Mapping) else {"mean": value, "std": None} for value in values]
    return " / ".join("–" if one["mean"] is None else with_spread(one["mean"], one["std"]) for one in means)


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
    escaped = (note.replace("|", "\\|").replace("\n", " ") for note in notes)
    return "\n".join(f"- {note}" for note in escaped)
