"""Content of the report, read from the artifacts once, and its first line: when, from what and on what it was made.

The provenance is in `provenance.json`, which `pretrain` and each sweep write next to their result.
Those artifacts contain measured times, so they differ between runs anyway. The report writes no date or commit of its
own: the same artifacts give the same bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertline.foundation.files import read_json, read_json_lines, read_object
from bertline.foundation.formats import duration, short_title
from bertline.foundation.manifests import read_manifest, require_version
from bertline.foundation.metrics_log import MetricsRow, read_metrics
from bertline.pretraining.objectives import objective_from
from bertline.tasks.stored_rows import read_task_manifest

PROVENANCE_NAME = "provenance.json"
"""Name of the file in the artifacts of `pretrain` and of each sweep."""
_SEEDS = {"examples": "examples", "pretrain": "pretraining", "sweep": "sweeps"}
# Versions that the report names; provenance.json has all of them.
_NAMED = ("python", "torch", "pytorch-lightning", "tokenizers", "numpy", "optuna")
RESULT_FORMAT = 4
"""Supported format version of the sweep's result.json."""
ARMS = ("encoder", "combined", "without_teacher", "random_weights")


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineFolders:
    """Folders from which the report is made.

    Without pretraining, `corpus`, `tokenizer` and `examples` are None, and `pretrain` contains the checkpoint.
    """

    corpus: Path | None
    tokenizer: Path | None
    examples: Path | None
    pretrain: Path
    tasks: dict[str, Path]
    sweeps: dict[str, Path]
    params: dict[str, Any]
    """Complete configuration, as plain data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskFacts:
    """A task and the results of its sweep."""

    name: str
    manifest: dict[str, Any]
    result: dict[str, Any]
    folder: Path
    """Artifact of the task's rows."""
    calibration: dict[str, float]
    """Parameters of the best model that were tuned on dev, such as the no-answer threshold."""
    distillation: dict[str, Any] = field(default_factory=dict)
    """What a student and its teacher cost, and score; empty if that was not measured."""

    @property
    def metric(self) -> str:
        """Metric by which trials were selected."""
        return str(self.result["metric"])

    def arms(self) -> dict[str, dict[str, Any]]:
        """Return the results of the fine-tuned encoders by name: `ARMS`, then `encoder_2` and so on; only those run."""
        return dict(sorted(self.result["arms"].items(), key=lambda arm: (*ARMS, arm[0]).index(arm[0])))

    def baselines(self) -> dict[str, dict[str, Any]]:
        """Return the baselines, best on test first."""
        return dict(sorted(self.result["baselines"].items(), key=lambda item: (-item[1]["test"], item[0])))

    def systems(self) -> dict[str, dict[str, Any]]:
        """Return the arms, then the baselines."""
        return {**self.arms(), **self.baselines()}

    def titles(self) -> dict[str, str]:
        """Return the display name of each encoder and each baseline."""
        titles = {name: short_title(one["title"]) for name, one in self.systems().items()}
        return {name: "random weights" if name == "random_weights" else title for name, title in titles.items()}

    def in_a_sentence(self, name: str) -> str:
        """Return the title of an arm for the middle of a sentence."""
        title = self.titles()[name]
        return "the same encoder from random weights" if title.endswith("random weights") else title


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The manifests and results of a finished pipeline.

    If a checkpoint was fine-tuned without further pretraining, `corpus`, `tokenizer` and `examples` are empty, and
    `training` only describes the checkpoint.
    """

    title: str
    params: dict[str, Any]
    taken_from: str | None
    """Checkpoint that was fine-tuned without further pretraining; None if an encoder was pretrained."""
    corpus: dict[str, Any]
    tokenizer: dict[str, Any]
    examples: dict[str, Any]
    objective: Any
    """`Objective` of pretraining; None if nothing was pretrained."""
    training: dict[str, Any]
    """Headline figures of pretraining."""
    rows: list[MetricsRow]
    mask_predictions: list[dict[str, Any]]
    alarms: list[dict[str, Any]]
    """Alarms of pretraining."""
    tasks: list[TaskFacts]
    provenance: list[dict[str, Any]]
    """Where pretraining and each sweep come from (`write_provenance`); those that are not recorded are left out."""

    @property
    def baselines(self) -> dict[str, float]:
        """Baselines of the objective's metrics; see `Objective.baselines`."""
        return {} if self.objective is None else self.objective.baselines({**self.examples, **self.training})

    def curve(self, key: str) -> list[tuple[float, float]]:
        """Return a metric as (step, value) pairs."""
        return [(row.step, row.metrics[key]) for row in self.rows if key in row.metrics]

    def origin(self) -> dict[str, str]:
        """Return when, from what and on what the results were made, by name, all values where stages differ."""
        found, sections = self.provenance, self.params

        def of_all(values: Iterable[str]) -> str:
            return "; ".join(dict.fromkeys(filter(None, values)))

        seeds = [f"{_SEEDS[name]} {sections[name]['seed']}" for name in _SEEDS if "seed" in sections.get(name, {})]
        versions = {name: of_all(one["versions"].get(name, "") for one in found) for name in _NAMED}
        facts = {
            "finished": max((one["ended"] for one in found), default=""),
            "commit": of_all(one["commit"].replace("+changes", " with changes") for one in found),
            "preset": str(sections.get("evaluate", {}).get("preset", "")),
            "seeds": ", ".join(seeds),
            "machine": of_all(one["machine"] for one in found),
            "versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
            "fingerprint": f"{found[0]['stage']} {found[0]['fingerprint']}" if found else "",
            "training time": "" if self.taken_from else duration(self.training["train_time_s"]),
        }
        return {name: fact for name, fact in facts.items() if fact}


def read_facts(pipeline: PipelineFolders, title: str) -> Facts:
    """Read the artifacts of a pipeline."""
    pretrain = read_manifest(pipeline.pretrain, kind="pretrain", format_version=1)
    folders = {"corpus": pipeline.corpus, "tokenizer": pipeline.tokenizer, "examples": pipeline.examples}
    found = {
        kind: {} if folder is None else read_manifest(folder, kind=kind, format_version=1)
        for kind, folder in folders.items()
    }
    provenances = [folder / PROVENANCE_NAME for folder in (pipeline.pretrain, *pipeline.sweeps.values())]
    return Facts(
        title=title,
        params=pipeline.params,
        taken_from=pretrain.get("taken_from"),
        **found,
        objective=None if "taken_from" in pretrain else objective_from(pretrain["training"]["objective"]),
        training=pretrain["metrics"],
        rows=list(read_metrics(pipeline.pretrain / "metrics.jsonl")),
        mask_predictions=read_json_lines(pipeline.pretrain / "mask_predictions.jsonl"),
        alarms=read_json_lines(pipeline.pretrain / "health.jsonl"),
        tasks=[_task_facts(pipeline, name) for name in pipeline.sweeps],
        provenance=[read_json(path) for path in provenances if path.exists()],
    )


def _task_facts(pipeline: PipelineFolders, name: str) -> TaskFacts:
    folder = pipeline.sweeps[name]
    return TaskFacts(
        name=name,
        manifest=read_task_manifest(pipeline.tasks[name]),
        result=read_result(folder / "result.json"),
        folder=pipeline.tasks[name],
        calibration=read_object(folder / "best" / "task.json", missing_ok=True).get("calibration", {}),
        distillation=read_object(folder / "distillation.json", missing_ok=True),
    )


def read_result(path: Path) -> dict[str, Any]:
    """Read the result.json of a sweep."""
    result: dict[str, Any] = read_json(path)
    require_version(path, result, RESULT_FORMAT, " Run the sweep again (dvc repro).")
    return result
