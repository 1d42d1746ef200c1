"""sweep@TASK: the Optuna study of one task, its best configuration over seeds, its baselines.

`bertline.sweep.run` is the page to read: trials, candidates over seeds, test, baselines, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.foundation.formats import escaped, markdown_table
from bertline.foundation.mappings import value_at
from bertline.foundation.work import Work
from bertline.stages.base import ENCODERS, TRAINING_PACKAGES, Stage, matching
from bertline.tracking.tracked_runs import Attachment, ShownTable

if TYPE_CHECKING:
    from bertline.config import PipelineConfig


class Sweep(Stage):
    """The study of a task, its best configuration over seeds, its baselines."""

    name = "sweep"
    summary = "The search for one task: its best configuration over seeds, compared with baselines."
    sections = ("tasks.{task}", "sweep")
    data = ("tasks.{task}.start_from", "tasks.{task}.teacher", "sweep")
    inputs = (f"{ENCODERS}/{{task}}", "artifacts/tasks/{task}")
    output = "artifacts/sweep/{task}"
    packages = (*TRAINING_PACKAGES, "scipy", "scikit-learn", "optuna")
    is_long = True
    attachments = (
        Attachment(path="result/result.json", contains_text=True),
        Attachment(path="result/predictions.parquet", contains_text=True),
    )
    tables = (
        ShownTable(path="result/predictions.parquet", name="predictions"),
        ShownTable(path="result/predictions.parquet", name="errors", wrong_only=True),
    )

    def more_packages(self, config: Mapping[str, Any], task: str | None) -> Iterator[str]:
        if value_at(config, f"tasks.{task}.kind") in ("retrieval", "reranking"):
            yield from ("bm25s", "faiss-cpu")

    def build(self, work: Work) -> dict[str, float]:
        from bertline.sweep.job import SweepJob
        from bertline.sweep.run import run_sweep

        return run_sweep(SweepJob.of(work))

    def join(self, work: Work, **options: Any) -> bool:
        from bertline.sweep.job import SweepJob
        from bertline.sweep.workers import join_sweep

        return join_sweep(SweepJob.of(work), **options)

    def headline(self, metrics: Mapping[str, float], objective: Any) -> dict[str, float]:
        scores = matching(metrics, r"test/.+_mean")[:1]
        difference = metrics.get("encoder/difference_from_strongest")
        baseline = {} if difference is None else {"baseline": scores[0] - difference}
        return {"score": scores[0], **baseline} if scores else {}

    def note(
        self, config: PipelineConfig, name: str, metrics: Mapping[str, float], output: Path
    ) -> tuple[str, list[str]]:
        from bertline.evaluation.facts import read_result
        from bertline.tasks.metrics import metric_name

        result = read_result(output / "result.json")
        alone, among = (escaped(result[part]["sentence"]) for part in ("conclusion", "encoders"))
        tables = result["encoders"]["tables"]
        blocks = [*filter(None, [alone, _arms(result, metric_name(result["metric"])), among])]
        blocks += [markdown_table(head, [list(map(escaped, row)) for row in rows]) for head, rows in tables]
        return f"{name}: {metric_name(result['metric'])} {result['arms']['encoder']['test_mean']:.3f}", blocks


def uses_pretrained(start_from: str | None) -> bool:
    """Return whether a task's `start_from` needs the pipeline's own encoder, or its architecture and vocabulary."""
    return start_from in (None, "random")


def _arms(result: Mapping[str, Any], metric: str) -> str:
    rows = [(escaped(one["title"]), with_std(one), one["test_mean"]) for one in result["arms"].values() if one]
    rows += [(one["title"], f"{one['test']:.3f}", one["test"]) for one in result["baselines"].values()]
    best_first = sorted(rows, key=lambda row: -row[2])
    return markdown_table(["model", f"test {metric}"], [row[:2] for row in best_first])


def with_std(arm: Mapping[str, Any]) -> str:
    """Return an arm's mean on test, with its spread over seeds."""
    spread = f" ± {arm['test_std']:.3f} over {len(arm['seeds'])} seeds" if len(arm["seeds"]) > 1 else ""
    return f"{arm['test_mean']:.3f}{spread}"
