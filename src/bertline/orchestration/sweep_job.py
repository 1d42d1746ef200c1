"""Turns a frozen configuration into a task's sweep; results depend on this code, so the fingerprint covers it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from bertline.orchestration.config import PipelineConfig
from bertline.sweep.run import SweepJob, run_sweep


def work_on_sweep(task_name: str, config: PipelineConfig, inputs: Mapping[str, Path], folder: Path) -> dict[str, float]:
    """Sweep in a run folder, or resume there, and return the headline figures.

    Args:
        task_name: Name of the task in `config.tasks`.
        config: The configuration that the run folder was opened with.
        inputs: The folders of `tasks` (this task's rows) and, where the task starts from it, `pretrain` (the encoder).
        folder: The run folder, `runs/sweep@TASK/FINGERPRINT`.
    """
    return run_sweep(
        SweepJob(
            task_name=task_name,
            task=config.tasks[task_name],
            sweep=config.sweep,
            # Trials run on one device each; `sweep_workers` of them run in parallel.
            runtime=dataclasses.replace(config.runtime, num_devices=1, num_nodes=1),
            task_folder=inputs["tasks"],
            # A task with an encoder of its own does not use the pipeline's.
            pretrain_folder=inputs.get("pretrain", folder / "none"),
            run_folder=folder,
            studies_url=config.tracking.studies_url,
        )
    )
