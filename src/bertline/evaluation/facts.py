"""Everything the report says, read from the artifacts once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bertline.evaluation.folders import LineFolders
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json
from bertline.foundation.manifests import read_manifest
from bertline.foundation.metrics_log import MetricsRow, read_metrics
from bertline.tasks.storage import COLLECTION, read_task_manifest
from bertline.tasks.stored_rows import Documents

RESULT_FORMAT = 3
"""Of the sweep's result.json."""
ARMS = ("encoder", "combined", "random_weights", "reference_encoder")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskFacts:
    """A task and what its sweep found."""

    name: str
    manifest: dict[str, Any]
    result: dict[str, Any]
    calibration: dict[str, float]
    """What dev decided for the best model (the no-answer threshold)."""

    @property
    def metric(self) -> str:
        """What trials were chosen by."""
        return str(self.result["metric"])

    @property
    def strongest(self) -> str | None:
        """The baseline that was best on dev."""
        name: str | None = self.result["conclusion"]["opponent"]
        return name

    def arms(self) -> dict[str, dict[str, Any]]:
        """The encoders that were fine-tuned: `encoder`, and where they were run `random_weights` and
        `reference_encoder`."""
        return {name: self.result["arms"][name] for name in ARMS if self.result["arms"].get(name)}

    def baselines(self) -> dict[str, dict[str, Any]]:
        """The baselines, best on test first."""
        return dict(sorted(self.result["baselines"].items(), key=lambda item: (-item[1]["test"], item[0])))

    def titles(self) -> dict[str, str]:
        """What the report calls each encoder and each baseline."""
        titles = {name: short_title(one["title"]) for name, one in {**self.arms(), **self.baselines()}.items()}
        return {name: "random weights" if name == "random_weights" else title for name, title in titles.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The manifests and results of a finished pipeline.

    Where a checkpoint was fine-tuned as it is, `corpus`, `tokenizer` and `examples` are empty, and `training` only
    describes the checkpoint.
    """

    title: str
    params: dict[str, Any]
    taken_from: str | None
    """The checkpoint that was fine-tuned as it is; None where an encoder was trained."""
    corpus: dict[str, Any]
    tokenizer: dict[str, Any]
    examples: dict[str, Any]
    training: dict[str, Any]
    """The headline figures of pretraining."""
    rows: list[MetricsRow]
    film_strip: list[dict[str, Any]]
    alarms: list[dict[str, Any]]
    """Of pretraining."""
    tasks: list[TaskFacts]
    metrics: dict[str, dict[str, float]]
    """Headline figures by stage."""

    @property
    def nsp_chance(self) -> float:
        """The accuracy of always giving the commoner of the two labels of next sentence prediction."""
        return max(self.examples["random_next_prob"], 1 - self.examples["random_next_prob"])

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
        taken_from=pretrain.get("taken_from"),
        corpus=_manifest_of(line.corpus, "corpus"),
        tokenizer=_manifest_of(line.tokenizer, "tokenizer"),
        examples=_manifest_of(line.examples, "examples"),
        training=pretrain["metrics"],
        rows=list(read_metrics(line.pretrain / "metrics.jsonl")),
        film_strip=_read_rows(line.pretrain / "film_strip.jsonl"),
        alarms=_read_rows(line.pretrain / "health.jsonl"),
        tasks=[
            TaskFacts(
                name=name,
                manifest=read_task_manifest(line.tasks[name]),
                result=_with_right_documents(read_result(folder / "result.json"), line.tasks[name]),
                calibration=_calibration(folder / "best" / "task.json"),
            )
            for name, folder in line.sweeps.items()
        ],
        metrics={path.stem: read_json(path) for path in sorted(line.metrics.glob("*.json"))},
    )


def _manifest_of(folder: Path | None, kind: str) -> dict[str, Any]:
    return {} if folder is None else read_manifest(folder, kind=kind, format_version=1)


def read_result(path: Path) -> dict[str, Any]:
    """A sweep's result.json.

    Raises:
        ArtifactError: It is missing or of another format.
    """
    result: dict[str, Any] = read_json(path)
    if result.get("format_version") != RESULT_FORMAT:
        raise ArtifactError(
            f"{path}: format_version is {result.get('format_version')!r}, this bertline reads {RESULT_FORMAT}. Run the "
            "sweep again (dvc repro)."
        )
    return result


def short_title(title: str) -> str:
    """A title with no more of a path than its last two parts and with as much of a revision as people read.

    Example:
        >>> short_title("/home/ada/models/minilm/"), short_title("ada/encoder@86b5e0934494bd15c9632b12f734a8a67f723594")
        ('models/minilm', 'ada/encoder@86b5e09')
    """
    if title.startswith(("/", "./", "../", "~")):
        return "/".join(Path(title).parts[-2:])
    name, sign, revision = title.partition("@")
    return f"{name}{sign}{revision[:7]}" if len(revision) >= 32 else title


def spread_of(arm: dict[str, Any], split: str) -> float | None:
    """The standard deviation of an arm's score over its seeds; a single seed has none."""
    return arm[f"{split}_std"] if len(arm["seeds"]) > 1 else None


def _with_right_documents(result: dict[str, Any], task_folder: Path) -> dict[str, Any]:
    """The errors of a search name the right documents by their ids; people want to read the first of them."""
    errors = result.get("examples", {}).get("confident_errors", [])
    if result["task_kind"] != "retrieval" or not errors:
        return result
    wanted = {error["gold"].split(", ")[0] for error in errors}
    path = task_folder / f"{COLLECTION}.parquet"
    found = Documents.from_table(pq.read_table(path, filters=[("ids", "in", sorted(wanted))]))
    texts = dict(zip(found.ids, found.texts_read(), strict=True))
    for error in errors:
        error["right_document"] = texts.get(error["gold"].split(", ")[0])
    return result


def _calibration(path: Path) -> dict[str, float]:
    return dict(read_json(path)["calibration"]) if path.exists() else {}


def _read_rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
