"""The finished pipeline as a whole: folders of its artifacts, and facts for a model card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.config import PipelineConfig, without_untracked
from bertline.evaluation.facts import PipelineFolders
from bertline.foundation.files import read_json
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.foundation.validation import to_mapping
from bertline.pretraining.config import checkpoint_title
from bertline.stages.base import ARTIFACTS, METRICS

OF_PRETRAINING = ("corpus", "tokenizer", "examples")
"""Artifacts that only pretraining needs."""
_SECTIONS_OF_PRETRAINING = (*OF_PRETRAINING, "model", "objective", "optimizer", "schedule")


def pipeline_folders(config: PipelineConfig, inputs: Mapping[str, Path]) -> PipelineFolders:
    """Return the folders of the artifacts of the configured pipeline.

    Args:
        inputs: Folders of the encoder, `pretrain`, and of `tasks` and `sweep`, by the names of tasks or of the one
            task. All others are those in `artifacts/`.
    """
    return PipelineFolders(
        **{name: ARTIFACTS / name if config.pretrains else None for name in OF_PRETRAINING},
        pretrain=inputs["pretrain"],
        tasks=of_tasks(config, inputs["tasks"]),
        sweeps=of_tasks(config, inputs["sweep"]),
        params=used_params(config),
    )


def of_tasks(config: PipelineConfig, folder: Path) -> dict[str, Path]:
    """Return the folder of each task in an artifact; of a single task, with files of its own, it is the artifact."""
    return {name: folder if any(folder.glob("*.json")) else folder / name for name in config.tasks}


def used_params(config: PipelineConfig) -> dict[str, Any]:
    """Return the configuration that results depend on, without the sections of a pretraining that was not run."""
    params = without_untracked(to_mapping(config))
    if config.pretrains:
        return params
    used = {key: value for key, value in params.items() if key not in _SECTIONS_OF_PRETRAINING}
    return {**used, "pretrain": {"start_from": checkpoint_title(config.pretrain)}}


def pipeline_facts(config: PipelineConfig, commit: str) -> dict[str, Any]:
    """Return what a model card states about how the model was made, with the `commit` of the code."""
    artifacts = (*OF_PRETRAINING, "pretrain") if config.pretrains else ()
    manifests = {name: ARTIFACTS / name / MANIFEST_NAME for name in artifacts}
    figures = METRICS / "pretrain.json"
    return {
        "params": used_params(config),
        "commit": commit,
        "metrics": {"pretrain": read_json(figures)} if config.pretrains and figures.exists() else {},
        "manifests": {name: read_json(path) for name, path in manifests.items() if path.exists()},
    }
