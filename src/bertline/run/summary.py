"""The finished pipeline as a whole: folders of its artifacts, figures of every stage, facts for a model card."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.config import PipelineConfig
from bertline.evaluation.facts import PipelineFolders
from bertline.foundation.files import read_json
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.foundation.validation import to_mapping
from bertline.foundation.verdicts import Measured
from bertline.pretraining.config import checkpoint_title
from bertline.run.provenance import git_commit
from bertline.run.stage import without_untracked
from bertline.run.stages import ARTIFACTS, METRICS, STAGES
from bertline.run.unused import OF_PRETRAINING, SECTIONS_OF_PRETRAINING, is_unused
from bertline.tracking.registration import Standing


def pipeline_folders(config: PipelineConfig, inputs: Mapping[str, Path] | None = None) -> PipelineFolders:
    """Return the folders of the artifacts of the configured pipeline.

    Args:
        inputs: Folders of `tasks`, `sweep` and the encoder, `pretrain`, of a single task that is run by hand. All other
            folders are those in `artifacts/`.
    """
    pretraining = {name: None if is_unused(name, config) else ARTIFACTS / name for name in OF_PRETRAINING}
    if inputs is None:
        tasks, sweeps = ({name: ARTIFACTS / kind / name for name in config.tasks} for kind in ("tasks", "sweep"))
        encoder = ARTIFACTS / "pretrain"
    else:
        (name,) = config.tasks
        tasks, sweeps, encoder = {name: inputs["tasks"]}, {name: inputs["sweep"]}, inputs["pretrain"]
    params = used_params(config)
    return PipelineFolders(**pretraining, pretrain=encoder, tasks=tasks, sweeps=sweeps, params=params)


def used_params(config: PipelineConfig) -> dict[str, Any]:
    """Return the configuration that results depend on, without the sections of a pretraining that was not run."""
    params = without_untracked(to_mapping(config))
    if config.pretrains:
        return params
    used = {key: value for key, value in params.items() if key not in SECTIONS_OF_PRETRAINING}
    return {**used, "pretrain": {"start_from": checkpoint_title(config.pretrain)}}


def pipeline_facts(config: PipelineConfig) -> dict[str, Any]:
    """Return what a model card states about how the model was made."""
    artifacts = (*OF_PRETRAINING, "pretrain") if config.pretrains else ()
    manifests = {name: ARTIFACTS / name / MANIFEST_NAME for name in artifacts}
    names = [stage.full_name(task) for stage in STAGES for task in (config.tasks if stage.per_task else [None])]
    metrics = {name: METRICS / f"{name}.json" for name in names if config.pretrains}
    return {
        "params": used_params(config),
        "commit": git_commit(),
        "metrics": {name: read_json(path) for name, path in metrics.items() if path.exists()},
        "manifests": {name: read_json(path) for name, path in manifests.items() if path.exists()},
    }


def standing_of(sweep_folder: Path, *, alias: str) -> Standing:
    """Return the scores of a sweep's winner for the registry: on dev, to compare versions, and on test, for display."""
    result = read_json(sweep_folder / "result.json")
    arm, baseline = result["arms"]["encoder"], result["baselines"].get(result.get("winner", {}).get("name"))
    return Standing(
        alias=alias,
        data_hash=result["data_hash"],
        metric=result["metric"],
        dev=Measured.from_json(read_json(sweep_folder / "standing.json")),
        test_score=arm["test_mean"] if baseline is None else baseline["test"],
        test_std=arm["test_std"] if baseline is None else None,
    )
