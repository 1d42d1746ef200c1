"""Task section of the report: scores and baselines, label efficiency, sweep trials, details and errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.formatting import listing, metric_name, number_of, score, setting, with_diverged
from bertline.evaluation.html import figure, folded, paragraph, section, side_by_side, table
from bertline.evaluation.overlap import Overlap
from bertline.evaluation.sweep_notes import sweep_notes
from bertline.evaluation.task_charts import varied
from bertline.evaluation.task_details import details_section
from bertline.evaluation.task_intro import introduction
from bertline.evaluation.task_scores import conclusion, overlap_notes, score_tables, scores_sentence, verdicts
from bertline.foundation.formats import count
from bertline.kinds.registry import kind_part


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
    caption = (
        f"Test {metric}. Thick bars are one standard deviation over seeds, small dots the seeds; thin brackets are "
    )
    caption += "95 % intervals over seeds and test rows."
    figures = [figure(charts[f"{task.name}_scores"], caption)]
    if f"{task.name}_label_efficiency" in charts:
        figures.append(figure(charts[f"{task.name}_label_efficiency"], f"Test {metric} by number of labelled rows."))
    trials = [
        figure(
            charts[f"{task.name}_trials_{parameter}"],
            f"Dev {metric} of every trial by {parameter.replace('_', ' ')}.",
        )
        for parameter in varied(task)
    ]
    blocks = [
        introduction(task),
        paragraph(conclusion(task), "lead"),
        paragraph(scores_sentence(task)),
        verdicts(task),
        overlap_notes(task, overlaps, correct),
        paragraph(str(task.result["note"]), "soft") if task.result.get("note") else "",
        side_by_side(*figures),
        score_tables(task),
        f"<h3>What the sweep tried</h3>{paragraph(_choice(task))}{_admitted(task)}",
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
    return (
        f"{how}{_settings(arm['best_params'])}. Trained on {count(rows['train'])} rows, chosen on "
        f"{count(rows['dev'])}, tested once on {tests}."
    )


def _admitted(task: TaskFacts) -> str:
    notes = sweep_notes(task)
    return paragraph(" ".join(notes), "verdict unsure") if notes else ""


def _candidates(task: TaskFacts) -> str:
    """Return the configurations that were repeated over seeds: fewest diverged seeds first, then best dev mean."""
    arm = task.arms()["encoder"]
    candidates = sorted(arm.get("candidates") or [], key=_rank)
    if len(candidates) < 2:
        return ""
    rows = [
        [
            _settings(one["params"]),
            score(one["dev_mean"], one["dev_std"] if len(one["dev"]) > 1 else None) if one["dev"] else "–",
            with_diverged(len(one["dev"]), one.get("num_diverged", 0)),
            "chosen" if one["params"] == arm["best_params"] else "",
        ]
        for one in candidates
    ]
    content = table(["configuration", f"dev {metric_name(task.metric)}", "seeds", ""], rows)
    return folded(f"The best {len(rows)} configurations over seeds", content)


def _rank(candidate: dict[str, Any]) -> tuple[int, float]:
    # A candidate whose seeds all diverged has no mean and comes last.
    return candidate.get("num_diverged", 0), -candidate["dev_mean"] if candidate["dev"] else math.inf


def _settings(params: dict[str, object]) -> str:
    named = [f"{name.replace('_', ' ')} {setting(value)}" for name, value in sorted(params.items())]
    return listing(named or ["the defaults"])


_ERRORS = 8


class ReportPart(Protocol):
    """Contract of `kinds/NAME/report.py`."""

    def error_blocks(self, errors: Sequence[dict[str, Any]], task_folder: Path) -> list[str]:
        """Return the HTML of errors.

        Args:
            errors: Rows of `TaskKind.table` without `correct`.
            task_folder: Artifact of the task's rows.
        """

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
    return "<h3>Where it is sure and wrong</h3>" + "".join(report.error_blocks(errors, task.folder))
