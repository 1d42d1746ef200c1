"""evaluate: figures of all stages, curves and the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bertline.foundation.formats import escaped, markdown_table
from bertline.foundation.work import Work
from bertline.stages.base import Stage, matching, picked
from bertline.stages.pretrain import loss_of
from bertline.stages.sweep import with_std
from bertline.tracking.tracked_runs import NAME_TAG, NOTE_TAG, TrackedRuns

if TYPE_CHECKING:
    from bertline.config import PipelineConfig
    from bertline.pretraining.objectives.base import Objective


class Evaluate(Stage):
    """Every stage's figures, the curves, and the report."""

    name = "evaluate"
    summary = "The figures of all stages, the curves and the report."
    sections = ("evaluate", "tasks")
    inputs = tuple(f"artifacts/{name}" for name in ("corpus", "tokenizer", "examples", "pretrain", "tasks", "sweep"))
    output = "artifacts/evaluate"
    packages = ("torch", "numpy", "pandas", "scipy", "scikit-learn", "matplotlib", "tokenizers", "transformers")

    def build(self, work: Work) -> dict[str, float]:
        from bertline.evaluation.build import build_evaluation
        from bertline.stages.pipeline import pipeline_folders

        config = work.config
        folders, num_workers = pipeline_folders(config, work.inputs), config.runtime.num_workers
        return build_evaluation(config.evaluate, folders, work.output, num_workers=num_workers)

    def show(self, work: Work, runs: TrackedRuns, metrics: Mapping[str, float]) -> None:
        """Attach the report to the pipeline's run, with the headline figures and the verdicts."""
        from bertline.stages.pipeline import pipeline_folders

        report, sweeps = work.output / "report.html", pipeline_folders(work.config, work.inputs).sweeps
        headline, tags = pipeline_page(work.config, metrics, sweeps, report, work.commit)
        runs.pipeline.log_metrics(headline)
        runs.pipeline.tags.update(tags)
        runs.pipeline.log_artifact(report, contains_text=True)
        runs.pipeline.log_artifact(work.output / "plots", contains_text=False)

    def headline(self, metrics: Mapping[str, float], objective: Objective) -> dict[str, float]:
        scores = matching(metrics, r"[^/]+/encoder/.+_mean")
        of_all = {"score": sum(scores) / len(scores)} if scores else {}
        return {**of_all, **picked(metrics, loss=f"val/{objective.judged_by}")}


def pipeline_name(config: PipelineConfig) -> str:
    """Return what a pipeline is called: its preset, or the title of its report."""
    return config.evaluate.title if config.evaluate.preset == "none" else config.evaluate.preset


def pipeline_page(
    config: PipelineConfig, metrics: Mapping[str, float], sweeps: Mapping[str, Path], report: Path, commit: str
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the headline metrics of the pipeline's run, from those of `evaluate`, and its name and note."""
    from bertline.evaluation.facts import read_result
    from bertline.pretraining.objectives.base import shown_means
    from bertline.tasks.metrics import metric_name

    results = {task: read_result(folder / "result.json") for task, folder in sweeps.items()}
    scores_shown = [f"val/{mean.name}" for mean in shown_means(config.objective)]
    headline = {key: metrics[key] for key in scores_shown if key in metrics}
    rows, sentences = [], []
    for task, result in results.items():
        arm, metric = result["arms"]["encoder"], result["metric"]
        headline[f"{task}/{metric}"] = arm["test_mean"]
        opponent = result["baselines"].get(result["conclusion"]["opponent"])
        strongest = f"{opponent['test']:.3f} ({escaped(opponent['title'])})" if opponent else "–"
        rows.append((task, metric_name(metric), with_std(arm), strongest))
        sentences.append(f"- **{task}**: {escaped(result['conclusion']['sentence'])}")
    scores = loss_of(config, metrics)
    if not scores:  # a checkpoint was fine-tuned
        scores = [f"{task} {result['arms']['encoder']['test_mean']:.3f}" for task, result in results.items()]
    note = [
        f"Report: `{report.as_posix()}`, and `report.html` among the artifacts below; `config.yaml` there is the whole "
        f"configuration. Commit {commit[:10]}."
    ]
    if rows:  # first: MLflow folds all but the first lines away
        table = markdown_table(["task", "metric", "encoder", "strongest simple opponent"], rows)
        note = ["\n".join(sentences), table, *note]
    return headline, {NAME_TAG: ": ".join([pipeline_name(config), *scores[:1]]), NOTE_TAG: "\n\n".join(note)}
