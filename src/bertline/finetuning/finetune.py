"""One fine-tuning run: trains an encoder on a task and returns the model and its dev scores."""

import gc
import math
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
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
from bertline.kinds.base import Calibration, HeadSettings, LossOptions, TaskKind, distilled_batches
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


@dataclass(frozen=True, kw_only=True, slots=True)
class FineTuningResult:
    """Result of a fine-tuning run."""

    model: nn.Module
    calibration: Calibration
    checks: tuple[DevCheck, ...]
    """All dev evaluations in order."""
    dev_scores: dict[str, float]
    """Dev scores of the final model: the last epoch's, or with early stopping the best epoch's."""
    dev_statistics: NDArray[np.float64]
    """Contribution of each dev row to the scores, [N, K]."""


class DivergedError(BertlineError):
    """The loss or the gradient is no longer finite; the run cannot continue."""


def fine_tune(job: FineTuningJob, *, on_check: Callable[[DevCheck], None] | None = None) -> FineTuningResult:
    """Fine-tune a model; the result depends on the job alone (bitwise on a CPU, for a fixed number of threads).

    Args:
        on_check: Called after each dev evaluation. An exception that it raises ends the run.

    Raises:
        ConfigError: The encoder has fewer layers than the configuration names, there is nothing to train, or a loss
            option does not apply to the task.
        DivergedError: The loss or the gradient is no longer finite.
        TrainingInterrupted: A signal stopped the run, which is saved in `checkpoints`.
    """
    config = job.config
    check_options(job.kind, config)
    if config.method == "full" and config.num_epochs > 0:
        model = starting_model(job)
        checks, outcome = train(job, model, on_check)
    else:
        model = _untrained_model(job)
        outcome = evaluate_on_dev(job, model)
        checks = [DevCheck(1.0, 0, True, outcome.scores)]
        if on_check is not None:
            on_check(checks[0])
    return FineTuningResult(
        model=model,
        calibration=outcome.calibration,
        checks=tuple(checks),
        dev_scores=outcome.scores,
        dev_statistics=outcome.statistics,
    )


def _untrained_model(job: FineTuningJob) -> nn.Module:
    """Return a classifier on vectors, or the encoder as it is."""
    if job.config.method != "full":
        from bertline.finetuning.few_labels import vector_classifier  # loads scikit-learn

        return vector_classifier(job)
    model = starting_model(job)
    if job.kind.has_new_head(model):
        raise ConfigError(
            f"fine_tuning.num_epochs is 0, but the head of a task of the kind {job.kind.config.kind} starts from "
            "random weights, which are worth nothing untrained. Train at least one epoch."
        )
    return model


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


def num_epochs_of(job: FineTuningJob, steps_per_epoch: int) -> int:
    """Return the number of epochs that a run trains."""
    num_epochs = max(job.config.num_epochs, math.ceil(job.config.fewest_steps / steps_per_epoch))
    return num_epochs if job.most_steps is None else min(num_epochs, max(job.most_steps // steps_per_epoch, 1))


def train(
    job: FineTuningJob, model: nn.Module, on_check: Callable[[DevCheck], None] | None
) -> tuple[list[DevCheck], DevOutcome]:
    """Train a model in place; return the evaluations on dev and the last one, or the best with early stopping."""
    # Imported here, because they load Lightning: the process that supervises a sweep trains nothing.
    from bertline.finetuning import module as parts
    from bertline.training.interruption import TrainingInterrupted
    from bertline.training.trainer import build_trainer, fit

    kind, config = job.kind, job.config
    encoded = kind.prepared(model, job.train.encoded, job.train.rows, job.machine)
    batches = kind.training_batches(encoded, batch_size=config.batch_size, seed=job.seed)
    if job.train.soft_targets is not None:
        distilled = [(batches, job.train.soft_targets)]
        if (others := job.unlabelled) is not None and others.soft_targets is not None:
            more = kind.training_batches(others.encoded, batch_size=config.batch_size, seed=job.seed)
            distilled.append((more, others.soft_targets))
        batches = distilled_batches(distilled, seed=job.seed)
    num_epochs = num_epochs_of(job, len(batches))
    job = replace(job, config=replace(config, num_epochs=num_epochs))
    class_weights = None
    if config.class_weights == "balanced":
        # rows / (labels * rows of the label): their mean over the rows is 1; 0 for a label absent from train.
        counts = kind.label_counts(job.train.rows)
        weights = np.where(counts > 0, counts.sum() / (len(counts) * np.maximum(counts, 1)), 0.0)
        class_weights = torch.tensor(weights, dtype=torch.float32, device=job.machine.device)
    options = LossOptions(
        config.label_smoothing, class_weights, config.focal_gamma, config.soft_weight, config.soft_temperature
    )
    module = parts.FineTuningModule(job, model, options, batches)
    evaluation = parts.DevEvaluation(job, steps_per_epoch=len(batches), on_check=on_check)
    divergence = parts.Divergence(job.machine.device)
    callbacks = [divergence, parts.Progress(job), evaluation]
    patience, stopping = config.early_stopping_epochs, None
    if patience is not None:
        stopping = parts.EarlyStopping(evaluation, metric=kind.config.metric, patience=patience)
        callbacks.append(stopping)
    if job.checkpoints is not None:
        saving = parts.Saving(job, evaluation, stopping, divergence)
        saving.resume(module, batches)
        callbacks.append(saving)
    epochs, root = num_epochs - batches.num_taken // len(batches), Path(tempfile.gettempdir())
    trainer = build_trainer(job.machine, job.runtime, callbacks=callbacks, max_epochs=epochs, root=root)
    try:
        fit(trainer, module, batches)
    except parts.StoppedError as stopped:
        raise TrainingInterrupted(str(stopped)) from None
    finally:
        del trainer, module, callbacks
        gc.collect()  # they refer to each other, and hold several times the memory of the model
    outcome = evaluation.newest if stopping is None else stopping.best
    assert outcome is not None  # every epoch ends with an evaluation
    return evaluation.checks, outcome


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
