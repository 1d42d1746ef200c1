"""What one fine-tuning run is made of: its inputs, the model that it starts from, and how it is scored on dev."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.parameter_groups import freeze, reinitialize_top
from bertline.foundation.errors import BertlineError, ConfigError
from bertline.foundation.seeds import seed_for
from bertline.kinds.base import Calibration, HeadSettings, TaskKind
from bertline.modeling.attention import attention_device
from bertline.modeling.attention_choice import choose_attention
from bertline.modeling.initialization import initialize
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine

EncoderWeights = Literal["pretrained", "random"]
_OFF: dict[str, Any] = {"class_weights": "none", "label_smoothing": 0.0, "focal_gamma": 0.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSplit:
    """Rows of a split and their encoding."""

    rows: Any
    encoded: Any
    soft_targets: NDArray[np.float32] | None = None
    """What the teacher computes (`TaskKind.soft_targets`); None without a teacher."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FineTuningJob:
    """Inputs of a fine-tuning run: everything that determines its result, and the machine it runs on."""

    kind: TaskKind[Any, Any, Any]
    config: FineTuningConfig
    encoder: EncoderWeights
    """`random` keeps the architecture of `encoder_folder` and draws all weights from the seed."""
    encoder_folder: Path
    """Hugging Face folder of any BERT encoder."""
    train: TaskSplit
    dev: TaskSplit | None
    """None: the model is not evaluated, and its calibration is empty."""
    seed: int
    """Root seed of the head's weights, the order of rows and dropout."""
    machine: Machine
    runtime: RuntimeConfig
    unlabelled: TaskSplit | None = None
    """Rows that have the teacher's soft targets alone; their labels mean nothing."""
    checkpoints: Path | None = None
    """Folder to save a long run in, and a stopped one, which resumes from it. Whoever has the result deletes it. None:
    a signal ends the run at once, and nothing is saved."""
    checks: tuple[float, ...] = ()
    """Fractions of the schedule, ascending, in (0, 1), after which dev is scored in addition to the epoch ends."""
    title: str = "fine-tuning"
    """What the lines of its progress begin with."""
    ends_s: float | None = None
    """When all that is going on is expected to end, in seconds since the epoch, for the lines of progress."""
    most_steps: int | None = None
    """Number of optimizer steps that whole epochs may not exceed, but for the first; None: no limit."""


@dataclass(frozen=True, slots=True)
class DevCheck:
    """Scores of one dev evaluation during training."""

    share: float
    """Completed fraction of the schedule, in (0, 1]."""
    epoch: int
    """Number of finished epochs."""
    at_epoch_end: bool
    scores: dict[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class DevOutcome:
    """Result of an evaluation on dev."""

    scores: dict[str, float]
    calibration: Calibration
    statistics: NDArray[np.float64]
    """Contribution of each row to the scores, [N, K]."""


class DivergedError(BertlineError):
    """The loss or the gradient is no longer finite; the run cannot continue."""


def starting_model(job: FineTuningJob) -> nn.Module:
    """Return the model that a run starts from: the encoder with a new head; lower layers may be frozen."""
    lengths = [
        job.kind.lengths(split.encoded).max(initial=1) for split in (job.train, job.dev, job.unlabelled) if split
    ]
    device, dropout_prob = attention_device(job.machine.device, job.machine.precision), job.config.dropout_prob
    choice = choose_attention(job.runtime.attention, device, int(max(lengths)), dropout_prob=dropout_prob)
    head = HeadSettings(dropout_prob=dropout_prob, seed=seed_for(job.seed, "classifier"), attention=choice.kind)
    model = job.kind.new_model(job.encoder_folder, head)
    encoder: Any = model.bert
    if job.encoder == "random":
        initialize(model, encoder.config, seed=seed_for(job.seed, "encoder"))
    reinitialize_top(encoder, job.config.reinitialized_layers, seed=seed_for(job.seed, "reinitialized"))
    model.train()
    freeze(encoder, job.config.trained_layers)
    return model.to(torch.device(job.machine.device))


def num_epochs_of(job: FineTuningJob, steps_per_epoch: int) -> int:
    """Return the number of epochs that a run trains."""
    num_epochs = max(job.config.num_epochs, math.ceil(job.config.fewest_steps / steps_per_epoch))
    return num_epochs if job.most_steps is None else min(num_epochs, max(job.most_steps // steps_per_epoch, 1))


def evaluate_on_dev(job: FineTuningJob, model: nn.Module) -> DevOutcome:
    """Predict dev, choose the calibration on it, and score it; changes neither weights nor later random numbers.

    Without dev the outcome is empty.
    """
    if job.dev is None:
        return DevOutcome({}, {}, np.empty((0, 0)))
    kind, rows = job.kind, job.dev.rows
    predictions = kind.predict(model, job.dev.encoded, job.machine)
    calibration = kind.calibrate(rows, predictions)
    statistics = kind.statistics(rows, predictions, calibration)
    return DevOutcome(kind.scores(statistics), calibration, statistics)


def check_options(kind: TaskKind[Any, Any, Any], config: FineTuningConfig, *, varied: Collection[str] = ()) -> None:
    """Reject loss options that the task would ignore; `varied` are the fields that the trials of a sweep vary.

    Raises:
        ConfigError: An option that does not apply to the task is set or varied.
    """
    for name, why in kind.unused_options.items():
        value, off = getattr(config, name), _OFF[name]
        if value != off or name in varied:
            found = "is varied (space)" if name in varied else f"is {value}"
            raise ConfigError(
                f"fine_tuning.{name} {found}, but means nothing for a task of the kind {kind.config.kind}: {why}. "
                f"Set it to {off} for this task (tasks.NAME.fine_tuning)."
            )
