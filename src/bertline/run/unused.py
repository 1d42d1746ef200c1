"""Stages that a configuration does not use: if a checkpoint is fine-tuned as it is, no text is read.

DVC runs every stage of `dvc.yaml`. These stages then end at once, with a manifest that states why the output is empty.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.config import SECTIONS, PipelineConfig, pipeline_config
from bertline.foundation.files import folder_written_atomically, sha256_of_path, write_atomically, write_json
from bertline.foundation.manifests import write_manifest
from bertline.foundation.progress import say
from bertline.run.provenance import running_under_dvc
from bertline.run.stages import HEADLINE, METRICS, stage_named

OF_PRETRAINING = ("corpus", "tokenizer", "examples")
"""Stages that only pretraining needs."""
SECTIONS_OF_PRETRAINING = (*OF_PRETRAINING, "model", "objective", "optimizer", "schedule")
KIND, FORMAT_VERSION = "unused", 1


def is_unused(name: str, config: PipelineConfig) -> bool:
    """Return whether the configuration does not use a stage, or the artifact of its name."""
    return not config.pretrains and name in OF_PRETRAINING


def leave_out(name: str, composed: Mapping[str, Any]) -> bool:
    """Skip a stage that the configuration does not use; return False if the stage is needed.

    Under DVC its folder gets a manifest that states why it is empty; by hand nothing is written.
    """
    config = pipeline_config({key: composed[key] for key in SECTIONS if key in composed})
    if not is_unused(name, config):
        return False
    # Without the checkpoint's name, so that the folder is the same for every checkpoint.
    reason = "a checkpoint is fine-tuned as it is (pretrain.phases is empty)"
    say(f"{name}: not used, {reason}")
    if running_under_dvc():
        stage = stage_named(name)
        with folder_written_atomically(Path(stage.output)) as folder:
            write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content={"stage": name, "reason": reason})
        if stage.page is not None:
            write_atomically(Path(stage.page), f"<!doctype html><title>{name}</title><p>{name}: not used, {reason}\n")
        write_json(METRICS / f"{name}.json", {})
        write_json(HEADLINE / f"{name}.json", {})
    return True


def uses_pretrained(start_from: str | None) -> bool:
    """Return whether a task's `start_from` needs the pipeline's own encoder, or its architecture and vocabulary."""
    return start_from in (None, "random")


def write_encoder_pointers(config: PipelineConfig, pretrain_folder: Path, out: Path) -> None:
    """Write `out/TASK` for every task; those without a checkpoint of their own start from `pretrain_folder`."""
    own = {"encoder": "pretrain", "sha256": sha256_of_path(pretrain_folder)}
    with folder_written_atomically(out) as folder:
        folder.mkdir(parents=True, exist_ok=True)
        for name, task in config.tasks.items():
            # The task's own section and data/start determine the other checkpoint.
            write_json(folder / name, own if uses_pretrained(task.start_from) else {"encoder": "tasks.start_from"})
