"""What people see of a stage besides its result: in MLflow name, note, source and figures, in DVC five figures, a page.

The same inputs give the same page; it is sent to a remote server only where `tracking.log_text` allows.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bertline.config import PipelineConfig
from bertline.foundation.files import read_json, sha256_of_path, write_json
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.pretraining.objectives.base import Objective
from bertline.run.provenance import git_commit, running_under_dvc
from bertline.stages.base import Stage, charted
from bertline.tracking.tracked_runs import NAME_TAG, NOTE_TAG, TrackedRun


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


def write_headline(
    path: Path, stage: Stage, metrics: Mapping[str, float], objective: Objective, *, seconds: float, kept: Path
) -> None:
    """Write the figures that a person compares first; those that a stage does not have are left out.

    They are `score` (of pretraining the score that the objective shows, on held-out text; of a sweep the test score,
    of `evaluate` the mean of those), `baseline` (of pretraining that of its loss; of a sweep the test score of the
    strongest simple opponent), `loss` (by which the objective is judged, on held-out text), `rows` (documents, tokens
    of the vocabulary, examples or labelled rows to train on; models exported) and `seconds`.

    Args:
        kept: The same file in the run folder. Where a result without a time of its own is taken from there, the longer
            time is that of the work.
    """
    before = read_json(kept).get("seconds", 0.0) if kept.exists() else 0.0
    figures = {**stage.headline(metrics, objective), "seconds": round(max(before, seconds), 1)}
    for target in (kept, path):
        write_json(target, figures)
