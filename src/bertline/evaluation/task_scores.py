"""Scores of a task in sentences and tables: comparisons, differences and significance."""

from __future__ import annotations

import math
from typing import Any

from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.html import (
    escape,
    folded,
    listing,
    metric_name,
    number_of,
    paragraph,
    score,
    table,
    verdict,
    with_diverged,
)
from bertline.evaluation.overlap import Overlap
from bertline.foundation.formats import count, percent, signed
from bertline.foundation.verdicts import NOISE_UNKNOWN
from bertline.kinds.registry import kind_named

_NOT_KNOWN = f"{NOISE_UNKNOWN.capitalize()}."
_FEWEST_ROWS = 10
"""Minimum number of rows for a separate average."""


def scores_sentence(task: TaskFacts) -> str:
    """Return a sentence with a task's score, its spread over seeds, and every other arm and baseline."""
    titles, arms = task.titles(), task.arms()
    encoder = arms["encoder"]
    against = [
        f"{test_score(arm)} for {_in_a_sentence(titles[name])}" for name, arm in arms.items() if name != "encoder"
    ]
    against += [f"{score(baseline['test'])} for {titles[name]}" for name, baseline in task.baselines().items()]
    seeds = len(encoder["seeds"])
    repeated = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed, so its spread is not known"
    if num_diverged := encoder.get("num_diverged"):
        repeated += f"; {num_diverged} more diverged and {'has' if num_diverged == 1 else 'have'} no score"
    who = "it reaches" if task.result["start"] == "pipeline" else f"{titles['encoder']} reaches"
    sentence = f"On {task.name} {who} {metric_name(task.metric)} {test_score(encoder)} ({repeated})"
    if task.metric == "negative_log_perplexity":
        sentence += f", a perplexity of {math.exp(min(-encoder['test_mean'], 50.0)):,.1f}"
    return f"{sentence}, against {listing(against)}." if against else f"{sentence}."


def test_score(arm: dict[str, Any]) -> str:
    """Return an arm's mean on test with its spread; a single seed has no spread."""
    return score(arm["test_mean"], arm["test_std"])


def verdicts(task: TaskFacts) -> str:
    """Return whether pretraining helps, which of several encoders is best, and all comparisons."""
    return _pretraining(task) + _encoders(task) + _comparisons(task) + _failed_runs(task)


def conclusion(task: TaskFacts) -> str:
    """Return whether the encoder beats the strongest simple opponent, the first sentence of a task's section."""
    return str(task.result["conclusion"]["sentence"])


def _pretraining(task: TaskFacts) -> str:
    comparison = task.result.get("comparison") or {}
    if task.result["start"] == "random":
        sentence = "It started from random weights, so nothing is said of pretraining here."
    elif not comparison:
        sentence = "It was not compared with the same encoder from random weights."
    elif not _is_known(comparison):
        sentence = f"{_NOT_KNOWN} Whether pretraining helps here is not shown."
    else:
        sentence = {
            "better": "Pretraining helps here",
            "worse": "Pretraining harms here: random weights are better",
            "not shown": "Pretraining makes no clear difference here",
        }[comparison["verdict"]]
        sentence += f": the difference of the means is {_with_interval(comparison)}. {_smallest(comparison)}"
    return verdict(sentence, good=comparison.get("verdict") == "better")


def _encoders(task: TaskFacts) -> str:
    """Return a table of the encoders and one of the comparisons of every two; empty for one encoder."""
    encoders = task.result["encoders"]
    if not encoders["tables"]:
        return ""
    note = (
        "Each was tuned on dev with the same trials and seeds, and test was read after that. The p-values, and so the "
        "verdicts, are adjusted to the number of pairs; each interval is of one pair. ms per row was measured on test."
    )
    tables = "".join(table(*shown) for shown in encoders["tables"])
    return "<h3>Which encoder?</h3>" + paragraph(encoders["sentence"]) + tables + paragraph(note, "soft")


def _is_known(found: dict[str, Any]) -> bool:
    """Return whether the noise of a comparison is known."""
    return "p_value" in found


def _with_interval(found: dict[str, Any]) -> str:
    low, high = map(signed, found["interval"])
    return f"{signed(found['difference'])} (95 % interval {low} to {high})"


def _smallest(found: dict[str, Any]) -> str:
    return f"The smallest difference this sweep could have seen is {score(found['smallest_visible'])}."


def _comparisons(task: TaskFacts) -> str:
    """Return a table of comparisons per test split; the table of `test` has no heading."""
    blocks = []
    for split, comparisons in task.result["comparisons_by_split"].items():
        titles = {name: title for name, title in task.titles().items() if name in comparisons}
        rows = [_comparison_row(title, comparisons[name]) for name, title in titles.items()]
        if not rows:
            continue
        head = ["measured against", "difference", "95 % interval", "smallest difference it could have seen", "outcome"]
        heading = "" if split == "test" else f"<h4>{escape(_test_name(split))}</h4>"
        rows_of_test = number_of(task.result["rows"][split], "row")
        note = f"On the same {rows_of_test} of {_test_name(split)}; "
        if any(_is_known(found) for found in comparisons.values()):
            note += "the noise of seeds, of rows and of rows from one source is counted together."
        else:
            note += _NOT_KNOWN
        blocks.append(heading + table(head, rows) + paragraph(note, "soft"))
    return "".join(blocks)


_WORDS = {"better": "beaten", "worse": "better than the encoder", "not shown": "no clear difference"}


def _comparison_row(title: str, found: dict[str, Any]) -> list[str]:
    known = ["–", "–", "not known"]
    if _is_known(found):
        interval = " to ".join(map(signed, found["interval"]))
        known = [interval, score(found["smallest_visible"]), _WORDS[found["verdict"]]]
    return [title, signed(found["difference"]), *known]


def _test_name(split: str) -> str:
    return "test" if split == "test" else f"test ({split.removeprefix('test_').replace('_', ' ')})"


def _failed_runs(task: TaskFacts) -> str:
    notes = []
    for name, arm in task.arms().items():
        diverged = arm.get("num_diverged", 0)
        if arm.get("num_degenerate"):
            of = number_of(len(arm["seeds"]) + diverged, "seed")
            which = f" ({diverged} diverged)" if diverged else ""
            notes.append(f"{arm['num_degenerate']} of {of} of {_in_a_sentence(task.titles()[name])}{which}")
    if not notes:
        return ""
    return verdict(
        f"Failed runs: {listing(notes)}. Those that say the same of every row count in the means; those that diverged "
        "have no score to count."
    )


def overlap_notes(task: TaskFacts, overlaps: dict[str, Overlap], correct: dict[str, list[float]]) -> str:
    """Describe the overlap of each test set with the pretraining corpus; flagged test sets stand out."""
    blocks = []
    for split, found in overlaps.items():
        measure = kind_named(task.result["task_kind"]).row_measure(task.metric)
        note = _overlap_sentence(_test_name(split), found) + _clean_sentence(found, correct.get(split, []), measure)
        blocks.append(verdict(note) if found.flagged else paragraph(note, "soft"))
    return "".join(blocks)


def _overlap_sentence(name: str, found: Overlap) -> str:
    if not found.rows:
        return f"Overlap with the pretraining text: the rows of {name} are too short to look for."
    if not found.touched:
        return (
            f"Overlap with the pretraining text: none of the {count(found.rows)} rows of {name} shares a run of "
            f"{found.ngram} words with it."
        )
    short = f" {number_of(found.rows_too_short, 'row')} of fewer than 4 words were not looked for."
    warning = "Part of this test may have been read in pretraining. " if found.flagged else ""
    return (
        f"{warning}Overlap with the pretraining text: {count(len(found.touched))} of {count(found.rows)} rows of "
        f"{name} ({percent(found.share_of_rows)}) share a run of {found.ngram} words with it; "
        f"{percent(found.share_of_ngrams)} of all such runs stand there.{short if found.rows_too_short else ''}"
    )


def _clean_sentence(found: Overlap, correct: list[float], measure: str) -> str:
    touched = set(found.touched)
    inside = [value for place, value in enumerate(correct) if place in touched]
    outside = [value for place, value in enumerate(correct) if place not in touched]
    if min(len(inside), len(outside)) < _FEWEST_ROWS:
        return ""
    means = [sum(values) / len(values) for values in (inside, outside)]
    if set(correct) <= {0.0, 1.0}:
        return f" The best model gets {percent(means[0])} of these rows right and {percent(means[1])} of the others."
    return f" For the best model, {measure} is {score(means[0])} on these rows and {score(means[1])} on the others."


def score_tables(task: TaskFacts) -> str:
    """Return all scores as collapsed tables, one per split."""
    blocks, titles = [], task.titles()
    for split in ("dev", *task.result["test_splits"]):
        contents = task.systems()
        metrics = list(dict.fromkeys(metric for one in contents.values() for metric in one["scores"].get(split, {})))
        if not metrics:
            continue
        metrics.sort(key=lambda metric: metric != task.metric)  # the selection metric comes first
        rows = [
            [titles[name], *(_cell(one, split, metric) for metric in metrics), *_interval_cell(one, split), _seeds(one)]
            for name, one in contents.items()
        ]
        interval = [] if split == "dev" else [f"95 % interval of {metric_name(task.metric)}"]
        head = ["", *map(metric_name, metrics), *interval, "seeds"]
        size = task.result["rows"].get(split)
        heading = split.replace("_", " ") + (f", {number_of(size, 'row')}" if size else "")
        blocks.append(f"<h4>{escape(heading)}</h4>{table(head, rows)}")
    return folded("All scores as a table", "".join(blocks) + _chosen_on_dev(task))


def _chosen_on_dev(task: TaskFacts) -> str:
    """Describe the settings that were chosen on dev for the compared systems."""
    titles = task.titles()
    notes = [
        f"{titles[name]} ({', '.join(f'{key} {value}'.replace('_', ' ') for key, value in one['settings'].items())})"
        for name, one in task.systems().items()
        if one.get("settings")
    ]
    return paragraph(f"Chosen on dev: {'; '.join(notes)}.", "soft") if notes else ""


def _cell(content: dict[str, Any], split: str, metric: str) -> str:
    value = content["scores"].get(split, {}).get(metric)
    if value is None:
        return "–"
    return score(value["mean"], value["std"]) if isinstance(value, dict) else score(value)


def _interval_cell(content: dict[str, Any], split: str) -> list[str]:
    """Return the interval over the rows of a test split; dev has none, because it was used for selection."""
    if split == "dev":
        return []
    bounds = content["intervals"][split]
    return [f"{score(bounds[0])} to {score(bounds[1])}" if bounds else "–"]


def _seeds(content: dict[str, Any]) -> str:
    return with_diverged(len(content["seeds"]), content.get("num_diverged", 0)) if "seeds" in content else "–"


def _in_a_sentence(title: str) -> str:
    return "the same encoder from random weights" if title.endswith("random weights") else title
