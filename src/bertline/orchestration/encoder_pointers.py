"""The encoder that each task starts from, as a small file per task that DVC compares to see whether a sweep is stale.

A sweep that starts from a checkpoint of its own does not depend on pretraining. If `artifacts/pretrain` were its
dependency, every pretraining would run it again.
"""

from __future__ import annotations

from pathlib import Path

from bertline.foundation.files import folder_written_atomically, sha256_of_path, write_json
from bertline.orchestration.config import PipelineConfig
from bertline.tasks.config import BaseTaskConfig


def uses_pretrained(task: BaseTaskConfig) -> bool:
    """Return whether a task needs the pipeline's own encoder, or its architecture and vocabulary."""
    return task.start_from in (None, "random")


def write_encoder_pointers(config: PipelineConfig, pretrain_folder: Path, out: Path) -> None:
    """Write `out/TASK` for every task.

    Args:
        config: Configuration with the tasks; each gets a file.
        pretrain_folder: The encoder that tasks without a checkpoint of their own start from.
        out: The folder to write.
    """
    own = {"encoder": "pretrain", "sha256": sha256_of_path(pretrain_folder)}
    with folder_written_atomically(out) as folder:
        folder.mkdir(parents=True, exist_ok=True)
        for name, task in config.tasks.items():
            # The task's own section and data/start determine the other checkpoint.
            write_json(folder / name, own if uses_pretrained(task) else {"encoder": "tasks.start_from"})
