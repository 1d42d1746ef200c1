"""Turns a frozen configuration into a pretraining; results depend on this code, so the fingerprint covers it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bertline.orchestration.config import PipelineConfig
from bertline.pretraining.linear_probe import linear_probes
from bertline.pretraining.run import PretrainJob, run_pretraining
from bertline.tokenization.resolve import resolve_folder


def work_on_pretraining(config: PipelineConfig, inputs: Mapping[str, Path], folder: Path) -> dict[str, float]:
    """Pretrain in a run folder, or resume there, and return the headline figures.

    Args:
        config: The configuration that the run folder was opened with.
        inputs: The folders of `examples` and `tokenizer`.
        folder: The run folder, `runs/pretrain/FINGERPRINT`.
    """
    start, extends = config.pretrain.start_from, config.pretrain.extends
    job = PretrainJob(
        model=config.model,
        objective=config.objective,
        optimizer=config.optimizer,
        schedule=config.schedule,
        pretrain=config.pretrain,
        runtime=config.runtime,
        examples_folder=inputs["examples"],
        tokenizer_folder=inputs["tokenizer"],
        run_folder=folder,
        start_from_folder=resolve_folder(start, config.pretrain.start_from_revision) if start else None,
        extend_from=folder.parent / extends if extends else None,
    )
    return run_pretraining(job, make_probes=linear_probes(job))
