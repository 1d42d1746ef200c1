"""Everything the report says, read from the artifacts once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.evaluation.folders import LineFolders
from bertline.foundation.files import read_json
from bertline.foundation.manifests import read_manifest
from bertline.foundation.metrics_log import MetricsRow, read_metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskFacts:
    """A task and what its sweep found."""

    name: str
    manifest: dict[str, Any]
    result: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The manifests and results of a finished line."""

    title: str
    params: dict[str, Any]
    corpus: dict[str, Any]
    tokenizer: dict[str, Any]
    examples: dict[str, Any]
    training: dict[str, Any]
    """The headline figures of pretraining."""
    rows: list[MetricsRow]
    film_strip: list[dict[str, Any]]
    tasks: list[TaskFacts]
    metrics: dict[str, dict[str, float]]
    """Headline figures by stage."""

    def curve(self, key: str) -> list[tuple[float, float]]:
        """A metric as (step, value) pairs."""
        return [(row.step, row.metrics[key]) for row in self.rows if key in row.metrics]


def read_facts(line: LineFolders, title: str) -> Facts:
    """Read a line's artifacts.

    Raises:
        ArtifactError: A stage before this one has not written its folder, or in another layout.
    """
    pretrain = read_manifest(line.pretrain, kind="pretrain", format_version=1)
    return Facts(
        title=title,
        params=line.params,
        corpus=read_manifest(line.corpus, kind="corpus", format_version=1),
        tokenizer=read_manifest(line.tokenizer, kind="tokenizer", format_version=1),
        examples=read_manifest(line.examples, kind="examples", format_version=1),
        training=pretrain["metrics"],
        rows=list(read_metrics(line.pretrain / "metrics.jsonl")),
        film_strip=_read_rows(line.pretrain / "film_strip.jsonl"),
        tasks=[
            TaskFacts(
                name=name,
                manifest=read_manifest(line.tasks[name], kind="task", format_version=1),
                result=read_json(folder / "result.json"),
            )
            for name, folder in line.sweeps.items()
        ],
        metrics={path.stem: read_json(path) for path in sorted(line.metrics.glob("*.json"))},
    )


def spread_of(arm: dict[str, Any], split: str) -> float | None:
    """The standard deviation of an arm's score over its seeds; a single seed has none."""
    return arm[f"{split}_std"] if len(arm["seeds"]) > 1 else None


def _read_rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
