"""Task section of the report: an example row, scores and baselines, what the sweep tried and has to admit, errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow.parquet as pq

from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.html import (
    CHARACTERS,
    escape,
    figure,
    folded,
    listing,
    metric_name,
    number_of,
    paragraph,
    score,
    section,
    setting,
    shortened,
    side_by_side,
    table,
    verdict,
    with_diverged,
)
from bertline.evaluation.overlap import Overlap
from bertline.evaluation.task_charts import varied
from bertline.evaluation.task_details import details_section
from bertline.evaluation.task_scores import conclusion, overlap_notes, score_tables, scores_sentence, verdicts
from bertline.foundation.formats import count, percent
from bertline.kinds.registry import kind_part
from bertline.tasks.stored_rows import COLLECTION

_FEWEST_CHOICES = 3
"""With only two values, the best one is always at an edge."""
_NEAR = 0.1
"""Fraction of a continuous range, on its logarithmic scale, that counts as its edge."""


def sweep_notes(task: TaskFacts) -> list[str]:
    """Return sentences on the trials of each arm; none if there is nothing to admit."""
    titles = task.titles()
    notes = []
    for name, arm in task.arms().items():
        who = "" if name == "encoder" else f" of {titles[name]}"
        notes += _repeated(arm["trials"], who)
        notes += _edges(arm["best_params"], task.space, who) if arm["trials"] else []
    return notes


def _repeated(trials: list[dict[str, Any]], who: str) -> list[str]:
    """Return a sentence if several trials had the same hyperparameters."""
    of_point: dict[str, list[int]] = {}
    for trial in trials:
        of_point.setdefault(repr(sorted(trial["params"].items())), []).append(trial["number"])
    groups = [listing([str(number) for number in numbers]) for numbers in of_point.values() if len(numbers) > 1]
    if not groups:
        return []
    same = "; ".join(f"trials {group} are the same point" for group in groups)
    return [
        f"The {number_of(len(trials), 'trial')}{who} tried only {number_of(len(of_point), 'different point')}: {same}."
    ]


def _edges(best: Mapping[str, Any], space: Mapping[str, Mapping[str, Any]], who: str) -> Iterator[str]:
    """Yield a sentence for each best value at an edge of the space: a better one may lie beyond it."""
    for name, value in sorted(best.items()):
        if name not in space or not isinstance(value, int | float):
            continue
        values = sorted(space[name].get("values", ()))
        if space[name]["kind"] == "log_uniform":
            low, high = space[name]["low"], space[name]["high"]
            place = math.log(value / low) / (math.log(high / low) or 1.0)
        elif len(values) >= _FEWEST_CHOICES:
            low, high = values[0], values[-1]
            place = 0.0 if value <= low else 1.0 if value >= high else 0.5
        else:
            continue
        if not _NEAR < place < 1 - _NEAR:
            yield (
                f"The best {name.replace('_', ' ')}{who}, {setting(value)}, is at the "
                f"{'lower' if place <= _NEAR else 'upper'} edge of the space ({setting(low)} to {setting(high)}); a "
                "better one may lie beyond it."
            )


_SPLIT = "train"
_SOURCES = {
    "docs_library": "Which library does a passage of documentation describe? The names of the libraries are removed.",
    "docs_match": "Does a summary belong to the function that a text describes, or to another one of its module?",
    "docs_parameters": "Which words of a description name parameters of the function?",
    "docs_search": "Find the documentation of a function, given the summary of it.",
}
"""Sentences on the default tasks, which ask for something more special than their kind does."""
_COLUMNS = {
    "texts": "text",
    "text_pairs": "second text",
    "labels": "label",
    "numbers": "number",
    "words": "words",
    "questions": "question",
    "contexts": "passage",
    "answers": "answers",
    "queries": "query",
    "document_ids": "right document",
    "candidates": "candidates",
    "sentences": "sentences",
    "summaries": "summary",
}
"""Columns of stored rows that an example shows, with their names for people."""


def introduction(task: TaskFacts) -> str:
    """Return the sentence and the example as HTML; no example if the rows are not there."""
    about = _SOURCES.get(task.source) or kind_part(task.result["task_kind"], "report").about(task.result["labels"])
    return paragraph(about) + _example(task)


def _example(task: TaskFacts) -> str:
    path = task.folder / f"{_SPLIT}.parquet"
    first = next(pq.ParquetFile(path).iter_batches(batch_size=1), None) if path.exists() else None
    if first is None or first.num_rows == 0:
        return ""
    row: dict[str, Any] = first.to_pylist()[0]
    shown = ((name, _value(task, key, row)) for key, name in _COLUMNS.items() if row.get(key) is not None)
    lines = (f"<p><small>{name}</small> {value}</p>" for name, value in shown)
    return f"<blockquote>{''.join(lines)}<footer class='soft'>An example, the first row of train</footer></blockquote>"


def _value(task: TaskFacts, key: str, row: dict[str, Any]) -> str:
    value = row[key]
    if key == "words":
        return " ".join(map(_tagged, value, row["tags"]))
    if key == "labels":
        return escape(shortened(_label(task, row), CHARACTERS))
    if key == "document_ids":
        return escape(shortened(_document(task, value), CHARACTERS))
    if isinstance(value, list):
        more = f" … ({number_of(len(value), key.removesuffix('s'))})" if len(value) > 1 else ""
        return escape(shortened(str(value[0]) if value else "none", CHARACTERS)) + more
    return escape(shortened(str(value), CHARACTERS))


def _tagged(word: str, tag: str) -> str:
    return f'<mark class="right">{escape(word)}<small>{escape(tag)}</small></mark>' if tag != "O" else escape(word)


def _label(task: TaskFacts, row: dict[str, Any]) -> str:
    """Return the label of a row by name; several if it has several, or one for each of its sentences."""
    names, value = task.result["labels"], row["labels"]
    if isinstance(value, int):
        return str(names[value])
    if "sentences" in row:
        return ", ".join(names[number] for number in value)
    return ", ".join(name for name, given in zip(names, value, strict=True) if given) or "none"


def _document(task: TaskFacts, ids: list[str]) -> str:
    """Return the text of the first right document of a query."""
    path = task.folder / f"{COLLECTION}.parquet"
    found = pq.read_table(path, filters=[("ids", "in", ids[:1])]).to_pylist() if path.exists() else []
    return " ".join(filter(None, (found[0]["titles"], found[0]["texts"]))) if found else ", ".join(ids)


def task_section(
    task: TaskFacts, charts: dict[str, str], overlaps: dict[str, Overlap], correct: dict[str, list[float]]
) -> str:
    """Return the section of one task.

    Args:
        task: Data and sweep results of the task.
        charts: Charts from `task_charts`.
        overlaps: Overlap with the pretraining corpus, by test split.
        correct: Correctness of the best model on each row, by test split.
    """
    metric = metric_name(task.metric)
    caption = f"Test {metric}. Thick bars are one standard deviation over seeds, small dots the seeds; thin brackets "
    caption += "are 95 % intervals over seeds and test rows."
    figures = [figure(charts[f"{task.name}_scores"], caption)]
    if f"{task.name}_label_efficiency" in charts:
        figures.append(figure(charts[f"{task.name}_label_efficiency"], f"Test {metric} by number of labelled rows."))
    trials = [
        figure(charts[f"{task.name}_trials_{name}"], f"Dev {metric} of every trial by {name.replace('_', ' ')}.")
        for name in varied(task)
    ]
    notes = verdict(" ".join(admitted)) if (admitted := sweep_notes(task)) else ""
    blocks = [
        introduction(task),
        paragraph(conclusion(task), "lead"),
        paragraph(scores_sentence(task)),
        verdicts(task),
        overlap_notes(task, overlaps, correct),
        paragraph(str(task.result["note"]), "soft") if task.result.get("note") else "",
        side_by_side(*figures),
        score_tables(task),
        f"<h3>What the sweep tried</h3>{paragraph(_choice(task))}{notes}",
        f"{side_by_side(*trials)}{_candidates(task)}",
        details_section(task),
        errors_section(task),
    ]
    return section(f"task-{task.name}", f"Task: {task.name}", *blocks)


def _choice(task: TaskFacts) -> str:
    arm, rows = task.arms()["encoder"], task.result["rows"]
    states = [trial["state"] for trial in arm["trials"]]
    pruned = f", {states.count('PRUNED')} of them stopped early" if "PRUNED" in states else ""
    failed = f", {states.count('FAIL')} failed" if "FAIL" in states else ""
    tests = listing([f"{count(rows[split])} ({split})" for split in task.result["test_splits"] if split in rows])
    tried = f"{number_of(len(states), 'trial')} for the encoder{pruned}{failed}. Chosen on dev: "
    how = tried if states else "One configuration, and nothing to choose: "
    shares = [
        f"{name.replace('_', ' ')} {percent(share)}" for name, share in task.result.get("importances", {}).items()
    ]
    explained = f" What explains the differences between trials: {listing(shares)} (PED-ANOVA)." if shares else ""
    return (
        f"{how}{_settings(arm['best_params'])}. Trained on {count(rows['train'])} rows, chosen on "
        f"{count(rows['dev'])}, tested once on {tests}.{explained}"
    )


def _candidates(task: TaskFacts) -> str:
    """Return the configurations that were repeated over seeds: fewest diverged seeds first, then best dev mean."""
    arm = task.arms()["encoder"]

    def rank(candidate: dict[str, Any]) -> tuple[int, float]:
        # A candidate whose seeds all diverged has no mean and comes last.
        return candidate.get("num_diverged", 0), -candidate["dev_mean"] if candidate["dev"] else math.inf

    candidates = sorted(arm["candidates"], key=rank)
    if len(candidates) < 2:
        return ""
    rows = [
        [
            _settings(one["params"]),
            score(one["dev_mean"], one["dev_std"]) if one["dev"] else "–",
            with_diverged(len(one["dev"]), one.get("num_diverged", 0)),
            "chosen" if one["params"] == arm["best_params"] else "",
        ]
        for one in candidates
    ]
    content = table(["configuration", f"dev {metric_name(task.metric)}", "seeds", ""], rows)
    return folded(f"The best {len(rows)} configurations over seeds", content)


def _settings(params: dict[str, object]) -> str:
    named = [f"{name.replace('_', ' ')} {setting(value)}" for name, value in sorted(params.items())]
    return listing(named or ["the defaults"])


_ERRORS = 8


class ReportPart(Protocol):
    """Contract of `kinds/NAME/report.py`."""

    def error_block(self, error: dict[str, Any]) -> str:
        """Return the HTML of an error: a row of `TaskKind.table` without `correct`."""

    def about(self, labels: Sequence[str]) -> str:
        """Return a sentence on what a task with these labels asks for."""

    def row_measure(self, metric: str) -> str:
        """Return what the column `correct` of the predictions measures, in words; `metric` is the task's."""


def errors_section(task: TaskFacts) -> str:
    """Return the most confident errors of the best model on test."""
    errors = task.result.get("examples", {}).get("confident_errors", [])[:_ERRORS]
    if not errors:
        return ""
    report: ReportPart = kind_part(task.result["task_kind"], "report")
    return "<h3>Where it is sure and wrong</h3>" + "".join(map(report.error_block, errors))
