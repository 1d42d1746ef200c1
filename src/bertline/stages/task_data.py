"""task_data@TASK: rows of a labelled source, split into train, dev and test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bertline.foundation.mappings import value_at
from bertline.foundation.work import Work
from bertline.stages.base import PYTHON_DOCS, Stage, picked
from bertline.tracking.tracked_runs import TrackedRuns

_OF_DOCSTRINGS = ("docs_library", "docs_match", "docs_parameters", "docs_search")


class TaskData(Stage):
    """Labelled rows of one task."""

    name = "task_data"
    summary = "Labelled rows of one task: train, dev and test."
    sections = ("tasks.{task}", "python_docs")
    data = ("tasks.{task}.source", "tasks.{task}.unlabelled")
    inputs = ()
    output = "artifacts/tasks/{task}"
    packages = ("numpy", "pyarrow")

    def more_packages(self, config: Mapping[str, Any], task: str | None) -> Iterator[str]:
        source = value_at(config, f"tasks.{task}.source.kind")
        if source in _OF_DOCSTRINGS:
            yield PYTHON_DOCS
        if source == "hub":
            yield "datasets"
        if value_at(config, f"tasks.{task}.kind") == "reranking":
            yield from ("bm25s", "scikit-learn")

    def build(self, work: Work) -> dict[str, float]:
        from bertline.kinds.build import build_task

        config, name = work.config, str(work.task_name)
        num_workers = config.runtime.num_workers
        return build_task(name, config.tasks[name], config.python_docs, work.output, num_workers=num_workers)

    def show(self, work: Work, runs: TrackedRuns, metrics: Mapping[str, float]) -> None:
        for split in ("train", "dev", "test"):
            runs.stage.log_table(work.output / f"{split}.parquet", split, num_rows=100)

    def headline(self, metrics: Mapping[str, float], objective: Any) -> dict[str, float]:
        return picked(metrics, rows="train_rows")
