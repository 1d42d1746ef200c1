"""What people see of a stage besides its result: in MLflow name, note, source and figures, in DVC five figures, a page.

The same inputs give the same page; it is sent to a remote server only where `tracking.log_text` allows.
"""

from __future__ import annotations

import dataclasses
import getpass
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.config import PipelineConfig
from bertline.foundation.files import read_json, sha256_of_json, sha256_of_path, write_json
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.foundation.mappings import value_at
from bertline.pretraining.objectives.base import Objective
from bertline.run.provenance import artifact_digest, git_commit, running_under_dvc
from bertline.stages.base import Stage, charted
from bertline.stages.evaluate import pipeline_name
from bertline.tracking.tracked_runs import NAME_TAG, NOTE_TAG, TrackedRun, TrackedRuns

if TYPE_CHECKING:
    from bertline.run.stage import StageRun

# What a person compares pipelines by; `config.yaml` among the artifacts has the rest.
_HEADLINE_PARAMS = (
    "corpus.kind", "tokenizer.vocab_size", "model.num_hidden_layers", "model.hidden_size", "objective.kind",
    "optimizer.kind", "optimizer.lr", "pretrain.start_from", "pretrain.seed",
)  # fmt: skip


def opened_runs(run: StageRun, tracked: dict[str, Any], *, enabled: bool) -> TrackedRuns:
    """Return what the runs of a stage and of its pipeline show from the start.

    Args:
        tracked: Configuration that results depend on; with the commit, it identifies the pipeline's run.
        enabled: Whether they are recorded.
    """
    commit = git_commit()
    tags = {"git.commit": commit, **source_tags(f"pipelines/{run.stage.name}.py")}
    if experiment := os.environ.get("DVC_EXP_NAME"):
        tags["dvc.experiment"] = experiment
    digests = {f"bertline.input_sha256.{key}": sha for key, sha in run.made_of["inputs"].items()}
    return TrackedRuns(
        tracking=dataclasses.replace(run.config.tracking, enabled=enabled),
        opened_s=time.time(),
        stage=TrackedRun(
            key=run.fingerprint,
            name=run.name,
            params=run.made_of["sections"],
            tags={**tags, "bertline.fingerprint": run.fingerprint, **digests},
            inputs={key: (str(path), artifact_digest(path)) for key, path in run.inputs.items()},
            attachments=list(run.stage.attachments),
            tables=list(run.stage.tables),
        ),
        pipeline=TrackedRun(
            key=sha256_of_json({"config": tracked, "commit": commit})[:12],
            name=pipeline_name(run.config),
            params={key: value for key in _HEADLINE_PARAMS if (value := value_at(tracked, key)) is not None},
            tags=tags,
            config=tracked,
        ),
    )


def add_result(
    run: TrackedRun, config: PipelineConfig, stage: Stage, name: str, metrics: Mapping[str, float], output: Path
) -> None:
    """Add to a stage's run what is known when it has finished: figures, the manifest, name and note."""
    run.log_metrics(charted(metrics))
    # Names of labels are the user's own words.
    run.log_artifact(output / MANIFEST_NAME, contains_text=stage.per_task)
    run.tags.update(stage_page(config, stage, name, metrics, output))
    run.tags["bertline.output_sha256"] = sha256_of_path(output)


def source_tags(recipe: str) -> dict[str, str]:
    """Return the tags that MLflow shows as source, user and commit; `recipe` is a path, as `pipelines/pretrain.py`."""
    tags = {
        "mlflow.source.name": "dvc.yaml" if running_under_dvc() else recipe,
        "mlflow.source.type": "PROJECT" if running_under_dvc() else "LOCAL",
    }
    commit = git_commit().partition("+")[0]
    if commit != "none":
        tags["mlflow.source.git.commit"] = commit
    with suppress(OSError, KeyError):  # an account without a name, as in some containers
        tags["mlflow.user"] = getpass.getuser()
    return tags


def stage_page(
    config: PipelineConfig, stage: Stage, name: str, metrics: Mapping[str, float], output: Path
) -> dict[str, str]:
    """Return name and note of a finished stage's run; `name` has its task, such as `sweep@docs_library`."""
    title, blocks = stage.note(config, name, metrics, output)
    return {NAME_TAG: title, NOTE_TAG: "\n\n".join([f"{stage.summary} Result: `{output.as_posix()}`.", *blocks])}


NAMES = ("score", "baseline", "loss", "rows", "seconds")


def headline(stage: Stage, metrics: Mapping[str, float], objective: Objective, *, seconds: float) -> dict[str, float]:
    """Return the figures that a person compares first; those that a stage does not have are left out.

    Returns:
        `score` (of pretraining the score that the objective shows, on held-out text; of a sweep the test score, of
        `evaluate` the mean of those), `baseline` (of pretraining that of its loss; of a sweep the test score of the
        strongest simple opponent), `loss` (by which the objective is judged, on held-out text), `rows` (documents,
        tokens of the vocabulary, examples or labelled rows to train on; models exported) and `seconds`.
    """
    figures = stage.headline(metrics, objective)
    figures["seconds"] = round(seconds, 1)
    return {name: figures[name] for name in NAMES if name in figures}


def write_headline(
    path: Path, stage: Stage, metrics: Mapping[str, float], objective: Objective, *, seconds: float, kept: Path
) -> None:
    """Write a stage's headline figures.

    Args:
        kept: The same file in the run folder. Where a result without a time of its own is taken from there, the longer
            time is that of the work.
    """
    before = read_json(kept).get("seconds", 0.0) if kept.exists() else 0.0
    figures = headline(stage, metrics, objective, seconds=max(before, seconds))
    for target in (kept, path):
        write_json(target, figures)
