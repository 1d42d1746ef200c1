from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from bertline.evaluation.build import report_page
from bertline.evaluation.charts import task_charts
from bertline.evaluation.facts import Facts, TaskFacts
from bertline.evaluation.overlap import Overlap
from bertline.evaluation.task_section import TaskSection
from evaluation_inputs import HOSTILE, KINDS, comparison, make_result


def facts(name: str, **changes: Any) -> TaskFacts:
    return TaskFacts(name=name, manifest={}, result={**make_result(name), **changes}, calibration={}, folder=Path())


def page(task: TaskFacts, overlaps: dict[str, Overlap] | None = None) -> str:
    """The report of a checkpoint that was fine-tuned for one task, from the task's section on."""
    section = TaskSection(task, task_charts(task), overlaps or {})
    return report([section], "the checkpoint").split('<section id="task-')[1]


def report(tasks: list[TaskSection], taken_from: str) -> str:
    training = {"num_parameters": 7}
    whole = Facts(
        title="title", params={}, taken_from=taken_from, corpus={}, tokenizer={}, examples={}, objective=None,
        training=training, rows=[], mask_predictions=[], alarms=[], tasks=[one.facts for one in tasks], provenance=[],
    )  # fmt: skip
    shown = report_page(whole, tasks, [])
    return shown.replace("\u202f", " ")


def words(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))


def overlap(num_found: int, *, rows: int = 60, flagged: bool = False) -> Overlap:
    return Overlap(
        ngram=8, rows=rows, rows_too_short=2, flagged=flagged, rows_with_overlap=num_found,
        share_of_rows=num_found / rows, share_of_ngrams=num_found / rows / 2,
    )  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_names_its_score_its_baselines_and_what_was_wrong(name: str) -> None:
    task = facts(name)
    said = page(task)
    for baseline in task.result["baselines"].values():
        assert said.count(baseline["title"]) >= 3  # sentence, comparison, chart
    assert "Where it is sure and wrong" in said
    assert "general-encoder" in said
    assert "/models" not in said
    assert HOSTILE not in said


def test_a_difference_within_the_spread_is_not_called_a_win() -> None:
    assert "Pretraining helps here" in page(facts("library"))
    said = words(page(facts("library", comparison=comparison(0.01, 0.4))))
    assert "Pretraining makes no clear difference here: the difference" in said
    causes = comparison(0.01, 0.4) | {"cause": "3 seeds are too few"}
    assert "clear difference here; 3 seeds are too few: the" in words(page(facts("library", comparison=causes)))
    assert "+0.010 (95 % interval −0.030 to +0.050)" in said
    assert "The smallest difference this sweep could have seen is 0.070." in said


def test_one_seed_proves_nothing() -> None:
    task = facts("library")
    for arm in task.result["arms"].values():
        arm["seeds"] = arm["seeds"][:1]
    task.result["comparison"] = {"difference": 0.14}
    task.result["comparisons"] = {name: {"difference": 0.1} for name in task.result["comparisons"]}
    task.result["comparisons_by_split"] = {"test": task.result["comparisons"]}
    said = words(page(task))
    assert "Whether pretraining helps here is not shown" in said
    assert "+0.100 not known" in said  # the empty columns are left out
    alone = dataclasses.replace(task, result=make_result("library", full=False))
    said = words(page(alone))
    assert "one seed, so its spread is not known" in said and "±" not in said.split("What the sweep tried")[0]
    assert "was not compared with the same encoder from random weights" in said
    assert not any(word in said for word in ("beaten", "beats", "helps here:", "no clear difference"))


def test_diverged_seeds_stand_beside_the_scores_that_lack_them() -> None:
    task = facts("library")
    arm = task.result["arms"]["encoder"]
    arm["seeds"] = arm["seeds"][:3]
    arm |= {"num_diverged": 2, "num_degenerate": 3}
    arm["candidates"][1] |= {"dev": [], "dev_mean": None, "num_diverged": 5}
    said = words(page(task))
    assert "over 3 seeds; 2 more diverged and have no score" in said
    assert "0.370 to 0.470 3 (2 more diverged)" in said
    assert "batch size 32 and learning rate 0.0001 – 0 (5 more diverged)" in said


@pytest.mark.parametrize(
    ("found", "bold", "says"),
    [
        ({"verdict": "better"}, "0.420 ± 0.016", "this encoder"),
        ({"verdict": "worse"}, "0.320 (TF-IDF, logistic regression)", "the opponent"),
        ({"verdict": "not shown", "cause": "9 test rows are too few"}, None, "9 test rows are too few"),
        ({"verdict": "not shown"}, None, "not clear"),  # of an older version
        ({}, None, "not known"),
    ],
)
def test_the_winner_is_bold_and_the_strongest_opponent_named(
    found: dict[str, Any], bold: str | None, says: str
) -> None:
    tasks = [facts(name) for name in ("library", "match", "topics", "answers")]
    tasks[0].result["conclusion"]["encoder"] = found
    html = report([TaskSection(task, {"scores": [], "trials": []}, {}) for task in tasks], "the checkpoint")
    row = re.findall(r"<td[^>]*>(.*?)</td>", html.split("<tbody>")[1].split("</tr>")[0])
    assert [cell.removeprefix("<b>").removesuffix("</b>") for cell in row if "<b>" in cell] == ([bold] if bold else [])
    assert any("TF-IDF, logistic regression" in cell for cell in row)
    assert row[2] == says  # in sight on a narrow page too


def test_what_a_student_costs_is_drawn_with_the_machine() -> None:
    rows = [
        {"name": name, "ms_32": cost, "score": 0.8, "spread": 0.01}
        for name, cost in (("teacher", 9.0), ("student", 3.0))
    ]
    measured = {"machine": "two cores", "max_length": 64, "rows": rows}
    said = page(dataclasses.replace(facts("library"), distillation=measured))
    assert "compared with its teacher (two cores)" in said and "milliseconds for 32 rows of 64 tokens" in said
    assert "compared with its teacher" not in page(facts("library"))
