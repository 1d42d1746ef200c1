"""One fine-tuning run: an encoder and the rows of a task to a finished model and its dev scores."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.kinds.base import Calibration, HeadSettings, LossOptions, TaskKind
from bertline.finetuning.module import FineTuningData, FineTuningModule
from bertline.foundation.seeds import seed_for
from bertline.modeling.attention import choose_attention
from bertline.modeling.initialization import initialize
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine
from bertline.training.trainer import build_trainer, fit

EncoderWeights = Literal["pretrained", "random"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSplit:
    """Rows of a split, and the same encoded."""

    rows: Any
    encoded: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class FineTuningJob:
    """Everything that decides the outcome of a run, and where it runs."""

    kind: TaskKind[Any, Any, Any]
    config: FineTuningConfig
    encoder: EncoderWeights
    """`random` keeps the architecture of the folder and draws all weights from the seed."""
    encoder_folder: Path
    """A Hugging Face folder of any BERT encoder."""
    train: TaskSplit
    dev: TaskSplit
    seed: int
    """Root of the head's weights, the order of rows and dropout."""
    machine: Machine
    runtime: RuntimeConfig
    checks: tuple[float, ...] = ()
    """Shares of the schedule, rising, above 0 and below 1, after which dev is scored besides the ends of epochs."""


@dataclass(frozen=True, slots=True)
class DevCheck:
    """A look at dev during training."""

    share: float
    """Of the schedule that is behind, in (0, 1]."""
    epoch: int
    """Finished epochs."""
    at_epoch_end: bool
    scores: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class FineTuningResult:
    """What a run gives."""

    model: nn.Module
    calibration: Calibration
    checks: tuple[DevCheck, ...]
    """All looks at dev in order."""
    dev_scores: dict[str, float]
    """Of the finished model: that of the last epoch, or with early stopping that of the best."""


def fine_tune(job: FineTuningJob, *, on_check: Callable[[DevCheck], None] | None = None) -> FineTuningResult:
    """Train a model; the result is a function of the job alone (bitwise on a CPU, for a number of threads).

    Args:
        job: The run.
        on_check: Called after each look at dev. What it raises ends the run.
    """
    kind, config = job.kind, job.config
    model = _starting_model(job)
    encoded = kind.prepared(model, job.train.encoded, job.train.rows, job.machine)
    batches = kind.training_batches(encoded, batch_size=config.batch_size, seed=job.seed)
    num_steps = len(batches) * config.num_epochs
    checks: list[DevCheck] = []
    calibration: Calibration = {}

    def after_epoch(epoch: int) -> None:
        nonlocal calibration
        predictions = kind.predict(model, job.dev.encoded, job.machine)
        calibration = kind.calibrate(job.dev.rows, predictions)
        scores = kind.scores(kind.statistics(job.dev.rows, predictions, calibration))
        checks.append(DevCheck(epoch / config.num_epochs, epoch, True, scores))
        if on_check is not None:
            on_check(checks[-1])

    module = FineTuningModule(
        model,
        config,
        kind,
        LossOptions(config.label_smoothing, None),
        num_steps=num_steps,
        seed=job.seed,
        after_epoch=after_epoch,
    )
    trainer = build_trainer(
        job.machine, job.runtime, callbacks=[], max_epochs=config.num_epochs, root=Path(tempfile.gettempdir())
    )
    fit(trainer, module, FineTuningData(batches))
    return FineTuningResult(model=model, calibration=calibration, checks=tuple(checks), dev_scores=checks[-1].scores)


def _starting_model(job: FineTuningJob) -> nn.Module:
    lengths = [job.kind.lengths(split.encoded).max(initial=1) for split in (job.train, job.dev)]
    head = HeadSettings(
        dropout_prob=job.config.dropout_prob,
        seed=seed_for(job.seed, "classifier"),
        attention=choose_attention(job.runtime.attention, job.machine.device.type, int(max(lengths))),
    )
    model = job.kind.new_model(job.encoder_folder, head)
    if job.encoder == "random":
        encoder: Any = model.bert
        initialize(model, encoder.config, seed=seed_for(job.seed, "encoder"))
    return model.to(torch.device(job.machine.device))
