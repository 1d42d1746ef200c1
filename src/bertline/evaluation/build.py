"""The stage `evaluate`: an HTML report, its figures as files, and curves for `dvc plots`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from bertline.evaluation.charts import dropped_charts, pretraining_charts, task_charts
from bertline.evaluation.config import EvaluateConfig
from bertline.evaluation.facts import Facts, PipelineFolders, TaskFacts, read_facts
from bertline.evaluation.overlap import Overlaps, measure_overlap
from bertline.evaluation.report import report_page
from bertline.evaluation.task_section import TaskSection
from bertline.foundation.files import folder_written_atomically, write_atomically
from bertline.foundation.manifests import write_manifest
from bertline.foundation.verdicts import AS_NUMBER
from bertline.kinds.registry import kind_named
from bertline.pretraining.objectives.base import MLM_ACCURACY, MLM_LOSS, shown_means

FORMAT_VERSION = 1
_OPTIMIZATION = {"learning_rate": "optim/lr", "grad_norm": "optim/grad_norm", "tokens_per_s": "perf/tokens_per_s"}


def build_evaluation(
    config: EvaluateConfig, pipeline: PipelineFolders, out: Path, *, num_workers: int = 1
) -> dict[str, float | int]:
    """Write `report.html`, `curves/`, `confusion/` and `plots/`; the same artifacts give the same bytes.

    `num_workers` processes search the corpus for test rows.

    Returns:
        Headline figures of the pipeline: pretraining, and each task's score with its baselines, spread and overlap.

    Raises:
        ArtifactError: An earlier stage has not been run.
    """
    facts = read_facts(pipeline, config.title)
    pretraining, dropped = ([], []) if facts.taken_from else (pretraining_charts(facts), dropped_charts(facts))
    overlaps = task_overlaps(facts, pipeline, config, num_workers=num_workers)
    tasks = [
        TaskSection(
            facts=task,
            charts=task_charts(task, pipeline, num_points=config.embed_plot_points),
            overlaps=overlaps[task.name],
            correct=row_correctness(pipeline.sweeps[task.name], task),
        )
        for task in facts.tasks
    ]
    of_tasks = (task.charts for task in tasks)
    charts = [*pretraining, *dropped, *(one for of in of_tasks for one in (*of.scores, *of.trials, *of.vectors))]
    headline = headline_figures(facts, overlaps)
    page = report_page(
        facts, tasks, pipeline, pretraining=pretraining, dropped=dropped, num_documents=config.num_documents
    )
    with folder_written_atomically(out) as folder:
        write_atomically(folder / "report.html", page)
        (folder / "plots").mkdir()
        for one in charts:
            (folder / "plots" / f"{one.name}.png").write_bytes(one.chart.png)
        write_tables(facts, pipeline, folder)
        measured = {task: {split: one.figures() for split, one in of.items()} for task, of in overlaps.items()}
        content = {"figures": headline, "overlap": measured, "plots": sorted(one.name for one in charts)}
        write_manifest(folder, kind="evaluate", format_version=FORMAT_VERSION, content=content)
    return headline


def task_overlaps(facts: Facts, pipeline: PipelineFolders, config: EvaluateConfig, *, num_workers: int) -> Overlaps:
    """Measure the overlap of all test splits of all tasks with the corpus, which is read only once."""
    places = [(task, split) for task in facts.tasks for split in task.result["test_splits"]]
    overlaps: Overlaps = {task.name: {} for task in facts.tasks}
    if pipeline.corpus is None or not places:
        return overlaps  # the pretraining text of a checkpoint is unknown
    texts = {}
    for task, split in places:
        kind = kind_named(task.manifest["task_kind"])
        texts[f"{task.name}/{split}"] = kind.stored_rows(task.folder, split).texts_read()
    measured = measure_overlap(texts, pipeline.corpus, config.overlap, num_workers=num_workers)
    for task, split in places:
        overlaps[task.name][split] = measured[f"{task.name}/{split}"]
    return overlaps


def headline_figures(facts: Facts, overlaps: Overlaps) -> dict[str, float | int]:
    """Return the figures of pretraining, and for each task the score, its spread, every baseline and the overlap."""
    figures: dict[str, float | int] = {}
    if not facts.taken_from:  # held-out scores, then the measured baselines and the distances below them
        training, scores = facts.training, shown_means(facts.pretrained_by)
        figures |= {f"val/{shown.name}": training[f"val/{shown.name}"] for shown in scores}
        for term in facts.pretrained_by.terms:
            if term.figure is not None:
                figures[term.figure] = training[term.figure]
                figures[f"below_{term.figure}"] = training[term.figure] - training[f"val/{term.name}"]
    for task in facts.tasks:
        figures |= {f"{task.name}/{key}": value for key, value in _task_figures(task).items()}
        for split, overlap in overlaps.get(task.name, {}).items():
            figures[f"{task.name}/overlap/{split}_rows"] = overlap.share_of_rows
            figures[f"{task.name}/overlap/{split}_ngrams"] = overlap.share_of_ngrams
    return figures


def _task_figures(task: TaskFacts) -> dict[str, float | int]:
    figures: dict[str, float | int] = {}
    metric = task.metric
    for arm, content in task.arms().items():
        figures[f"{arm}/{metric}_mean"] = content["test_mean"]
        if content["test_std"] is not None:
            figures[f"{arm}/{metric}_std"] = content["test_std"]
        for split in task.result["test_splits"][1:]:
            figures[f"{arm}/{split}/{metric}_mean"] = content["scores"][split][task.metric]["mean"]
    for baseline, content in task.result["baselines"].items():
        figures[f"{baseline}/{metric}"] = content["test"]
    # 1: better, 0: not shown, -1: worse; comparisons without a verdict are omitted.
    others = [arm for arm in task.arms() if arm not in ("encoder", "combined")]
    comparisons = {f"beats_{arm}": task.result["comparisons"][arm] for arm in others}
    comparisons["beats_strongest"] = task.result["conclusion"].get("encoder", {})
    comparisons["combined_beats_strongest"] = task.result["conclusion"].get("combined", {})
    return figures | {key: AS_NUMBER[found["verdict"]] for key, found in comparisons.items() if "verdict" in found}


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
    for metric in (MLM_ACCURACY,) if facts.taken_from else facts.pretrained_by.metrics:
        if metric.share_of:
            table = _by_step(facts, {"train": f"train/{metric.name}", "validation": f"val/{metric.name}"})
            table.to_csv(curves / "accuracy" / f"{metric.name}.csv")
    _by_step(facts, _OPTIMIZATION).to_csv(curves / "optimization.csv")
    keys = ["task", "arm", "rows", "test_mean", "test_std"]
    rows = [{"task": task.name, **row} for task in facts.tasks for row in task.result["label_efficiency"]]
    pd.DataFrame(rows, columns=keys).to_csv(curves / "label_efficiency.csv", index=False)
    for task in facts.tasks:
        if task.result.get("confusion_matrix"):
            pairs = pd.read_parquet(pipeline.sweeps[task.name] / "predictions.parquet", columns=["gold", "predicted"])
            pairs.columns = ["actual", "predicted"]
            pairs.to_csv(folder / "confusion" / f"{task.name}.csv", index=False)


def _by_step(facts: Facts, metrics: Mapping[str, str]) -> pd.DataFrame:
    """Join the curves of metrics by step; a cell is empty where a curve has no value."""
    curves = {name: pd.Series(dict(facts.curve(metric)), dtype=float) for name, metric in metrics.items()}
    return pd.DataFrame(curves).rename_axis("step")


def row_correctness(sweep: Path, task: TaskFacts) -> dict[str, list[float]]:
    """Return, by test split, the correctness (0 to 1) of the best model on each row; splits without it are omitted."""
    found = {}
    for split in task.result["test_splits"]:
        path = sweep / ("predictions.parquet" if split == "test" else f"predictions_{split}.parquet")
        if not path.exists() or "correct" not in pq.read_schema(path).names:
            continue
        values = pq.read_table(path, columns=["correct"])["correct"].to_pylist()
        if all(value is not None and 0 <= value <= 1 for value in values):
            found[split] = [float(value) for value in values]
    return found
