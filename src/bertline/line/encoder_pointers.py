"""Which encoder each task starts from, as a small file a task: what DVC compares to know whether a sweep is stale.

A sweep that starts from a checkpoint of its own has nothing to do with the pretraining. Were `artifacts/pretrain` a
dependency of it, every pretraining would run it again.
"""

from __future__ import annotations

from pathlib import Path

from bertline.foundation.files import folder_written_atomically, sha256_of_path, write_json
from bertline.line.config import LineConfig
from bertline.tasks.config import BaseTaskConfig


def uses_pretrained(task: BaseTaskConfig) -> bool:
    """Whether a task needs the pipeline's own encoder, or the architecture and vocabulary of it."""
    return task.start_from in (None, "random")


def write_encoder_pointers(config: LineConfig, pretrain_folder: Path, out: Path) -> None:
    """Write `out/TASK` for every task.

    Args:
        config: Its tasks.
        pretrain_folder: The encoder that tasks without a checkpoint of their own start from.
        out: The folder to write.
    """
    own = {"encoder": "pretrain", "sha256": sha256_of_path(pretrain_folder)}
    with folder_written_atomically(out) as folder:
        folder.mkdir(parents=True, exist_ok=True)
        for name, task in config.tasks.items():
            # What the other checkpoint is, stands in the task's own section and in data/start.
            write_json(folder / name, own if uses_pretrained(task) else {"encoder": "tasks.start_from"})
