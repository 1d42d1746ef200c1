"""The sweep of one task: its configuration, and the folders that it reads and works in."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bertline.foundation.work import Work
from bertline.kinds.registry import TaskConfig
from bertline.sweep.config import SweepConfig
from bertline.training.config import RuntimeConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepJob:
    """The sweep of one task."""

    task_name: str
    task: TaskConfig
    sweep: SweepConfig
    runtime: RuntimeConfig
    task_folder: Path
    pretrain_folder: Path
    """Folder of the pipeline's own encoder and tokenizer, in Hugging Face format."""
    run_folder: Path
    """Folder of work in progress: outcomes, events, at the end `result/`. Its name is part of the
    studies' names."""
    studies_url: str
    """URL of the database with the studies of all tasks (see `TrackingConfig.studies_url`)."""

    @property
    def checkpoints(self) -> Path:
        """Folder with a folder of checkpoints for each run that trains or was stopped."""
        return self.run_folder / "checkpoints"

    @classmethod
    def of(cls, work: Work) -> Self:
        """Return the job of a run folder, whose inputs are `tasks` (this task's rows) and, if the
        task starts from the pipeline's encoder, `pretrain`."""
        config, name = work.config, str(work.task_name)
        return cls(
            task_name=name,
            task=config.tasks[name],
            sweep=config.sweep,
            runtime=config.runtime,
            task_folder=work.inputs["tasks"],
            pretrain_folder=work.inputs.get("pretrain", work.folder / "none"),
            run_folder=work.folder,
            studies_url=config.tracking.studies_url,
        )
