"""One fine-tuning run: trains an encoder on a task and returns the model and its dev scores."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.parameter_groups import freeze, reinitialize_top
from bertline.finetuning.task_kind import Calibration, HeadSettings, LossOptions, TaskKind
from bertline.foundation.errors import ConfigError
from bertline.foundation.seeds import seed_for
from bertline.modeling.attention import attention_device
from bertline.modeling.attention_choice import choose_attention
from bertline.modeling.initialization import initialize
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine

EncoderWeights = Literal["pretrained", "random"]
_OFF: dict[str, Any] = {"class_weights": "none", "label_smoothing": 0.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSplit:
    """Rows of a split and their encoding."""

    rows: Any
    encoded: Any


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
    dev: TaskSplit
    seed: int
    """Root seed of the head's weights, the order of rows and dropout."""
    machine: Machine
    runtime: RuntimeConfig
    checks: tuple[float, ...] = ()
    """Fractions of the schedule, ascending, in (0, 1), after which dev is scored in addition to the epoch ends."""


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


class DevEvaluations:
    """Evaluates a model on dev during training and, with early stopping, keeps the weights of the best epoch.

    An evaluation changes neither the weights nor the random numbers of later steps.

    Args:
        job: The run.
        on_check: Called after each evaluation; an exception that it raises ends the run.
    """

    def __init__(self, job: FineTuningJob, on_check: Callable[[DevCheck], None] | None) -> None:
        self.checks: list[DevCheck] = []
        self._job = job
        self._patience = job.config.early_stopping_epochs
        self._on_check = on_check
        self._newest: tuple[int, DevOutcome] | None = None
        self._best: tuple[float, DevOutcome, dict[str, Tensor]] | None = None
        self._epochs_without_better = 0

    def evaluate(self, model: nn.Module, *, step: int, share: float, epoch: int, at_epoch_end: bool) -> None:
        """Evaluate on dev and record the scores; a second call for the same step reuses the result."""
        if self._newest is None or self._newest[0] != step:
            kind, rows = self._job.kind, self._job.dev.rows
            predictions = kind.predict(model, self._job.dev.encoded, self._job.machine)
            calibration = kind.calibrate(rows, predictions)
            statistics = kind.statistics(rows, predictions, calibration)
            self._newest = (step, DevOutcome(kind.scores(statistics), calibration, statistics))
        self.checks.append(DevCheck(share, epoch, at_epoch_end, self._newest[1].scores))
        if at_epoch_end and self._patience is not None:
            self._compare(model, self._newest[1])
        if self._on_check is not None:
            self._on_check(self.checks[-1])

    @property
    def should_stop(self) -> bool:
        """Whether early stopping ends the run: the patience is exhausted."""
        return self._patience is not None and self._epochs_without_better >= self._patience

    def finish(self, model: nn.Module) -> DevOutcome:
        """Evaluate the finished model on dev; with early stopping, restore the weights of the best epoch first."""
        if self._best is not None:
            _, found, weights = self._best
            model.load_state_dict(weights)
            return found
        assert self._newest is not None  # every run ends with an evaluation
        return self._newest[1]

    def _compare(self, model: nn.Module, found: DevOutcome) -> None:
        score = found.scores[self._job.kind.config.metric]
        score = -math.inf if math.isnan(score) else score
        if self._best is not None and score <= self._best[0]:
            self._epochs_without_better += 1
            return
        weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self._best = (score, found, weights)
        self._epochs_without_better = 0


def fine_tune(job: FineTuningJob, *, on_check: Callable[[DevCheck], None] | None = None) -> FineTuningResult:
    """Fine-tune a model; the result depends on the job alone (bitwise on a CPU, for a fixed number of threads).

    Args:
        job: Inputs of the run.
        on_check: Called after each dev evaluation. An exception that it raises ends the run.

    Raises:
        ConfigError: The encoder has fewer layers than the configuration names, there is nothing to train, or a loss
            option does not apply to the task.
        DivergedError: The loss or the gradient is no longer finite.
    """
    kind, config = job.kind, job.config
    check_options(kind, config)
    model = _starting_model(job)
    evaluations = DevEvaluations(job, on_check)
    if config.num_epochs == 0:
        _check_scores_untrained(kind, model)
        evaluations.evaluate(model, step=0, share=1.0, epoch=0, at_epoch_end=True)
    else:
        _train(job, model, evaluations)
    found = evaluations.finish(model)
    return FineTuningResult(
        model=model,
        calibration=found.calibration,
        checks=tuple(evaluations.checks),
        dev_scores=found.scores,
        dev_statistics=found.statistics,
    )


def check_options(kind: TaskKind[Any, Any, Any], config: FineTuningConfig, *, varied: Collection[str] = ()) -> None:
    """Reject loss options that the task would ignore.

    Args:
        kind: Kind of the task.
        config: Configuration of the run.
        varied: Names of the fields that trials vary.

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


def _train(job: FineTuningJob, model: nn.Module, evaluations: DevEvaluations) -> None:
    # Imported here, because they load Lightning: the process that supervises a sweep trains nothing.
    from bertline.finetuning.module import FineTuningData, FineTuningModule
    from bertline.training.trainer import build_trainer, fit

    kind, config = job.kind, job.config
    encoded = kind.prepared(model, job.train.encoded, job.train.rows, job.machine)
    batches = kind.training_batches(encoded, batch_size=config.batch_size, seed=job.seed)
    options = LossOptions(config.label_smoothing, _class_weights(job))
    module = FineTuningModule(job, model, options, evaluations, steps_per_epoch=len(batches))
    root = Path(tempfile.gettempdir())
    trainer = build_trainer(job.machine, job.runtime, callbacks=[], max_epochs=config.num_epochs, root=root)
    fit(trainer, module, FineTuningData(batches))


def _starting_model(job: FineTuningJob) -> nn.Module:
    lengths = [job.kind.lengths(split.encoded).max(initial=1) for split in (job.train, job.dev)]
    choice = choose_attention(
        job.runtime.attention,
        attention_device(job.machine.device, job.machine.precision),
        int(max(lengths)),
        dropout_prob=job.config.dropout_prob,
    )
    head = HeadSettings(
        dropout_prob=job.config.dropout_prob, seed=seed_for(job.seed, "classifier"), attention=choice.kind
    )
    model = job.kind.new_model(job.encoder_folder, head)
    encoder: Any = model.bert
    if job.encoder == "random":
        initialize(model, encoder.config, seed=seed_for(job.seed, "encoder"))
    reinitialize_top(encoder, job.config.reinitialized_layers, seed=seed_for(job.seed, "reinitialized"))
    model.train()
    freeze(encoder, job.config.trained_layers)
    return model.to(torch.device(job.machine.device))


def _class_weights(job: FineTuningJob) -> Tensor | None:
    """Return class weights [labels], rows / (labels * rows of the label): their mean over the rows is 1; 0 for a label
    absent from train."""
    if job.config.class_weights == "none":
        return None
    counts = job.kind.label_counts(job.train.rows)
    weights = np.where(counts > 0, counts.sum() / (len(counts) * np.maximum(counts, 1)), 0.0)
    return torch.tensor(weights, dtype=torch.float32, device=job.machine.device)


def _check_scores_untrained(kind: TaskKind[Any, Any, Any], model: nn.Module) -> None:
    if kind.has_new_head(model):
        raise ConfigError(
            f"fine_tuning.num_epochs is 0, but the head of a task of the kind {kind.config.kind} starts from random "
            "weights, which are worth nothing untrained. Train at least one epoch."
        )
