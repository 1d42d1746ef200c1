"""The stage `evaluate`: a report from the template `report.html`, its figures as files, and curves for `dvc plots`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from bertline.corpus.quality.drops import drops_in_words
from bertline.evaluation.charts import Captioned, pretraining_charts, task_charts
from bertline.evaluation.config import EvaluateConfig
from bertline.evaluation.facts import Facts, PipelineFolders, TaskFacts, read_facts
from bertline.evaluation.html import in_unit, metric_name, rendered, score, test_score
from bertline.evaluation.overlap import Overlaps, measure_overlap
from bertline.evaluation.task_section import TaskSection
from bertline.foundation import verdicts
from bertline.foundation.files import folder_written_atomically, write_atomically
from bertline.foundation.formats import percent
from bertline.foundation.manifests import write_manifest
from bertline.kinds.registry import kind_named
from bertline.modeling.families import FAMILIES
from bertline.pretraining.objectives.base import MLM_ACCURACY, MLM_LOSS, shown_means


def build_evaluation(
    config: EvaluateConfig, pipeline: PipelineFolders, out: Path, *, num_workers: int = 1
) -> dict[str, float | int]:
    """Write `report.html`, `curves/`, `confusion/` and `plots/`; the same artifacts give the same bytes.

    `num_workers` processes search the corpus for test rows.

    Returns:
        Headline figures of the pipeline: pretraining, and each task's score with its baselines, spread and overlap.

    Raises:
        ArtifactError: An earlier stage has not been run, or its artifact has another format.
    """
    facts = read_facts(pipeline, config.title)
    pretraining = [] if facts.taken_from else pretraining_charts(facts)
    overlaps = task_overlaps(facts, pipeline, config, num_workers=num_workers)
    tasks = [TaskSection(facts=task, charts=task_charts(task), overlaps=overlaps[task.name]) for task in facts.tasks]
    charts = [*pretraining, *(one for task in tasks for of in task.charts.values() for one in of)]
    headline = report_figures(facts, overlaps)
    page = report_page(facts, tasks, pretraining)
    with folder_written_atomically(out) as folder:
        write_atomically(folder / "report.html", page)
        (folder / "plots").mkdir()
        for one in charts:
            (folder / "plots" / f"{one.name}.png").write_bytes(one.chart.png)
        write_tables(facts, pipeline, folder)
        measured = {task: {split: asdict(one) for split, one in of.items()} for task, of in overlaps.items()}
        content = {"figures": headline, "overlap": measured, "plots": sorted(one.name for one in charts)}
        write_manifest(folder, kind="evaluate", format_version=1, content=content)
    return headline


def task_overlaps(facts: Facts, pipeline: PipelineFolders, config: EvaluateConfig, *, num_workers: int) -> Overlaps:
    """Measure the overlap of all test splits of all tasks with the corpus, which is read only once."""
    places = [(task, split) for task in facts.tasks for split in task.result["test_splits"]]
    if pipeline.corpus is None or not places:  # the pretraining text of a checkpoint is unknown
        return {task.name: {} for task in facts.tasks}
    texts = {
        f"{task.name}/{split}": kind_named(task.manifest["task_kind"]).stored_rows(task.folder, split).texts_read()
        for task, split in places
    }
    measured = measure_overlap(texts, pipeline.corpus, flag=config.overlap_flag, num_workers=num_workers)
    return {
        task.name: {split: measured[f"{task.name}/{split}"] for split in task.result["test_splits"]}
        for task in facts.tasks
    }


def report_figures(facts: Facts, overlaps: Overlaps) -> dict[str, float | int]:
    """Return the figures of pretraining, and for each task the score, its spread, every baseline and the overlap."""
    figures: dict[str, float | int] = {}
    if not facts.taken_from:  # held-out scores, then the measured baselines and the distances below them
        training, scores = facts.training, shown_means(facts.objective)
        figures |= {f"val/{shown.name}": training[f"val/{shown.name}"] for shown in scores}
        for term in facts.objective.terms:
            if term.figure is not None:
                figures[term.figure] = training[term.figure]
                figures[f"below_{term.figure}"] = training[term.figure] - training[f"val/{term.name}"]
    for task in facts.tasks:
        figures |= {f"{task.name}/{key}": value for key, value in _task_figures(task)}
        for split, overlap in overlaps.get(task.name, {}).items():
            figures[f"{task.name}/overlap/{split}_rows"] = overlap.share_of_rows
            figures[f"{task.name}/overlap/{split}_ngrams"] = overlap.share_of_ngrams
    return figures


def _task_figures(task: TaskFacts) -> Iterator[tuple[str, float | int]]:
    metric, conclusion = task.metric, task.result["conclusion"]
    for arm, content in task.arms().items():
        yield f"{arm}/{metric}_mean", content["test_mean"]
        if content["test_std"] is not None:
            yield f"{arm}/{metric}_std", content["test_std"]
        for split in task.result["test_splits"][1:]:
            yield f"{arm}/{split}/{metric}_mean", content["scores"][split][task.metric]["mean"]
    for baseline, content in task.result["baselines"].items():
        yield f"{baseline}/{metric}", content["test"]
    others = [arm for arm in task.arms() if arm not in ("encoder", "combined")]
    compared = {
        **{f"beats_{arm}": task.result["comparisons"][arm] for arm in others},
        "beats_strongest": conclusion.get("encoder", {}),
        "combined_beats_strongest": conclusion.get("combined", {}),
    }
    # 1: better, 0: not shown, -1: worse; comparisons without a verdict are omitted.
    yield from ((key, verdicts.AS_NUMBER[one["verdict"]]) for key, one in compared.items() if "verdict" in one)


def write_tables(facts: Facts, pipeline: PipelineFolders, folder: Path) -> None:
    """Write `curves/` and `confusion/TASK.csv`.

    `dvc.yaml` plots every file of a folder, so an accuracy that the objective does not have has no file. The other
    files have only a header where there is nothing to plot.
    """
    curves = folder / "curves"
    (curves / "accuracy").mkdir(parents=True)
    (folder / "confusion").mkdir()
    loss = _by_step(facts, {"train": f"train/{MLM_LOSS.name}", "validation": f"val/{MLM_LOSS.name}"})
    loss.assign(unigram=facts.baselines.get(MLM_LOSS.name)).to_csv(curves / f"{MLM_LOSS.name}.csv")
    # Of a checkpoint that is fine-tuned as it is, one table with only a header is there, since `dvc.yaml` names it.
    for metric in (MLM_ACCURACY,) if facts.taken_from else facts.objective.metrics:
        if metric.share_of:
            table = _by_step(facts, {"train": f"train/{metric.name}", "validation": f"val/{metric.name}"})
            table.to_csv(curves / "accuracy" / f"{metric.name}.csv")
    optimization = {"learning_rate": "optim/lr", "grad_norm": "optim/grad_norm", "tokens_per_s": "perf/tokens_per_s"}
    _by_step(facts, optimization).to_csv(curves / "optimization.csv")
    rows = [{"task": task.name, **row} for task in facts.tasks for row in task.result["label_efficiency"]]
    pd.DataFrame(rows, columns=["task", "arm", "rows", "test_mean", "test_std"]).to_csv(
        curves / "label_efficiency.csv", index=False
    )
    for task in facts.tasks:
        if task.result.get("confusion_matrix"):
            pairs = pd.read_parquet(pipeline.sweeps[task.name] / "predictions.parquet", columns=["gold", "predicted"])
            pairs.columns = ["actual", "predicted"]
            pairs.to_csv(folder / "confusion" / f"{task.name}.csv", index=False)


def _by_step(facts: Facts, metrics: Mapping[str, str]) -> pd.DataFrame:
    """Join the curves of metrics by step; a cell is empty where a curve has no value."""
    curves = {name: pd.Series(dict(facts.curve(metric)), dtype=float) for name, metric in metrics.items()}
    return pd.DataFrame(curves).rename_axis("step")


def report_page(facts: Facts, tasks: Sequence[TaskSection], pretraining: Sequence[Captioned]) -> str:
    """Return the report as one file without other files, with charts of `pretraining`."""
    return rendered(
        "report.html",
        title=facts.title,
        facts=facts,
        training=facts.training,
        family=FAMILIES[facts.params.get("model", {}).get("family", "bert")],
        held_out="" if facts.taken_from else held_out(facts),
        task_table=(_TASK_HEAD, [_task_row(task) for task in tasks]),
        frames=_frames(facts),
        few=len(tasks) <= 3,  # each gets a second sentence
        tasks=tasks,
        pretraining=pretraining,
        dropped=drops_in_words(facts.corpus.get("dropped", {})),
        configuration={
            name: [[key, json.dumps(value, ensure_ascii=False)] for key, value in _flat(content)]
            for name, content in facts.params.items()
        },
    )


def held_out(facts: Facts) -> str:
    """Return the objective's summary of the held-out scores, compared with its baselines."""
    values = {}
    for shown in shown_means(facts.objective):
        value = facts.training[f"val/{shown.name}"]
        values[shown.name] = in_unit(value, shown.unit)
        if shown.name in facts.baselines:
            baseline = facts.baselines[shown.name]
            side = "below" if value <= baseline else "above"
            values[f"{shown.name}_baseline"] = in_unit(baseline, shown.unit)
            values[f"{shown.name}_margin"] = f"{in_unit(abs(baseline - value), shown.unit)} {side}"
    return str(facts.objective.summary.format(**values))


_TASK_HEAD = (
    "task", "test", "winner", "this encoder", "combined", "random weights", "best other encoder",
    "strongest simple opponent", "read in pretraining?",
)  # fmt: skip


def _task_row(section: TaskSection) -> list[str]:
    """Return a task's score next to the other arms and the strongest opponent, by `_TASK_HEAD`."""
    task = section.facts
    arms, baselines, titles = task.arms(), task.baselines(), task.titles()
    names = ("encoder", "combined", "random_weights")
    cells = {name: test_score(arms[name]) if name in arms else "–" for name in names}
    rivals = sorted((arm["dev_mean"], name) for name, arm in arms.items() if name.startswith("encoder_"))
    cells["rival"] = f"{test_score(arms[rivals[-1][1]])} ({titles[rivals[-1][1]]})" if rivals else "–"
    best = task.result["conclusion"]["opponent"]
    cells["opponent"] = "–" if best is None else f"{score(baselines[best]['test'])} ({titles[best]})"
    verdict, winners = _verdict(task.result["conclusion"])
    cells |= {winner: Markup("<b>{}</b>").format(cells[winner]) for winner in winners}
    return [task.name, metric_name(task.metric), verdict, *cells.values(), _overlap_note(section) or "–"]


def _frames(facts: Facts) -> dict[str, list[dict[str, Any]]]:
    """Return mask predictions by sentence: the first, the last and seven evenly spaced between."""
    sentences: dict[str, list[dict[str, Any]]] = {}
    for row in facts.mask_predictions:
        sentences.setdefault(row["sentence"], []).append(row)
    places = {name: np.linspace(0, len(rows) - 1, min(len(rows), 9)) for name, rows in sentences.items()}
    return {name: [rows[round(place)] for place in places[name]] for name, rows in sentences.items()}


def _verdict(conclusion: dict[str, Any]) -> tuple[str, list[str]]:
    """Return who wins in words, of the encoder alone and combined if they differ, and the columns of the winners."""
    words, unknown = {"better": "this encoder", "worse": "the opponent", "not shown": "not clear"}, "not known"
    compared = {arm: conclusion[arm] for arm in ("encoder", "combined") if arm in conclusion}
    said = {arm: verdicts.outcome(one, words) if "verdict" in one else unknown for arm, one in compared.items()}
    winners: list[str] = [arm for arm, outcome in said.items() if outcome == words["better"]]
    if len(set(said.values())) > 1:
        return f"alone: {said['encoder']}; combined: {said['combined']}", winners
    outcome = next(iter(said.values()), unknown)
    return outcome, ["opponent"] if outcome == words["worse"] else winners


def _overlap_note(section: TaskSection) -> str:
    flagged = [found.share_of_rows for found in section.overlaps.values() if found.flagged]
    return f"{percent(max(flagged))} of test rows in part" if flagged else ""


def _flat(content: Any, key: str = "") -> list[tuple[str, Any]]:
    if not isinstance(content, dict):
        return [(key, content)]
    return [pair for name, value in content.items() for pair in _flat(value, f"{key}.{name}" if key else name)]
