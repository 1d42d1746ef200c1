"""The finished line as a whole: where its artifacts lie, every stage's figures, the facts for a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertline.evaluation.folders import LineFolders
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.foundation.validation import to_mapping
from bertline.foundation.verdicts import Measured
from bertline.line.config import LineConfig
from bertline.line.opened import full_name, without_untracked
from bertline.line.provenance import git_commit
from bertline.line.stages import METRICS, STAGES
from bertline.tracking.champions import Standing


def line_folders(config: LineConfig) -> LineFolders:
    """Where the artifacts of the configured line lie."""
    return LineFolders(
        corpus=Path("artifacts/corpus"),
        tokenizer=Path("artifacts/tokenizer"),
        examples=Path("artifacts/examples"),
        pretrain=Path("artifacts/pretrain"),
        tasks={name: Path("artifacts/tasks") / name for name in config.tasks},
        sweeps={name: Path("artifacts/sweep") / name for name in config.tasks},
        metrics=METRICS,
        params=without_untracked(to_mapping(config)),
    )


def stage_metrics(config: LineConfig) -> dict[str, dict[str, float]]:
    """Headline figures of every stage that has been run: `{"sweep@docs_library": {"test/accuracy_mean": ...}}`."""
    names = [full_name(stage, task) for stage in STAGES for task in (config.tasks if stage.per_task else [None])]
    return {name: read_json(METRICS / f"{name}.json") for name in names if (METRICS / f"{name}.json").exists()}


def line_metrics(config: LineConfig) -> dict[str, float]:
    """The same, flat: `{"sweep-docs_library/test/accuracy_mean": ...}` (MLflow allows no @ in a key)."""
    return {
        f"{stage.replace('@', '-')}/{key}": value
        for stage, metrics in stage_metrics(config).items()
        for key, value in metrics.items()
    }


def line_facts(config: LineConfig) -> dict[str, Any]:
    """What a model card says of how the model came to be."""
    artifacts = ("corpus", "tokenizer", "examples", "pretrain")
    manifests = {name: Path("artifacts") / name / MANIFEST_NAME for name in artifacts}
    return {
        "params": without_untracked(to_mapping(config)),
        "commit": git_commit(),
        "metrics": stage_metrics(config),
        "manifests": {name: read_json(path) for name, path in manifests.items() if path.exists()},
    }


def standing_of(sweep_folder: Path, *, alias: str) -> Standing:
    """How good a sweep's winner is, for the registry: on dev, by which versions are compared, and on test, to be shown.

    Raises:
        ArtifactError: The sweep is of an older bertline.
    """
    path = sweep_folder / "standing.json"
    if not path.exists():
        raise ArtifactError(f"{path} is missing; the sweep was run by an older bertline. Run it again (dvc repro).")
    result = read_json(sweep_folder / "result.json")
    arm = result["arms"]["encoder"]
    return Standing(
        alias=alias,
        data_hash=result["data_hash"],
        metric=result["metric"],
        dev=Measured.from_json(read_json(path)),
        test_score=arm["test_mean"],
        test_std=arm["test_std"],
    )
