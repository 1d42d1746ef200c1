"""Training of one fine-tuning run: the LightningModule and its callbacks: dev, early stopping, saving, progress."""

from __future__ import annotations

import dataclasses
import gc
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from bertline.encoding.sequences import Epochs
from bertline.finetuning.embedding_rows import rows_to_train
from bertline.finetuning.job import DevCheck, DevOutcome, DivergedError, FineTuningJob, evaluate_on_dev, num_epochs_of
from bertline.finetuning.parameter_groups import fine_tuning_optimizer, nothing_to_train
from bertline.foundation.progress import say, warn
from bertline.foundation.seeds import seed_for
from bertline.kinds.base import LossOptions, distilled_batches
from bertline.training.checkpoints import CheckpointFolder
from bertline.training.config import LinearScheduleConfig
from bertline.training.devices import seed_device
from bertline.training.groupwise import clip_gradients, set_learning_rate
from bertline.training.interruption import StopRequest, TrainingInterrupted
from bertline.training.progress import TrainingProgress
from bertline.training.trainer import build_trainer, run_trainer

# Reading a value from a GPU synchronizes with it, so losses are read in groups there; on a CPU reading is free.
_READ_EVERY_STEPS_ON_A_GPU = 50


class FineTuningModule(pl.LightningModule):
    """Trains the model of any kind of task: AdamW, linear warm-up, and decay to zero after `num_steps` steps (paper,
    section 4 and A.3)."""

    def __init__(self, job: FineTuningJob, model: nn.Module, options: LossOptions, batches: Epochs) -> None:
        super().__init__()
        self.job, self.config, self.model, self.options = job, job.config, model, options
        self.num_steps = num_steps = len(batches) * job.config.num_epochs
        schedule = LinearScheduleConfig(kind="linear", num_warmup_steps=round(job.config.warmup_fraction * num_steps))
        self._learning_rate_factor = schedule.learning_rate_factor(num_steps)
        self._rows = rows_to_train(model, batches, job.config.num_epochs)
        self.num_trained = sum(weight.numel() for weight in model.parameters())
        """Number of weights that the optimizer has averages of: fewer on a CPU."""
        self.first_step = 0
        self.optimizer_state: dict[str, Any] | None = None
        """Number of steps before a resumed run started, and the state of its optimizer then."""
        self.grad_norm = torch.zeros(())
        """Norm of the newest gradient, before clipping."""

    @property
    def finished_steps(self) -> int:
        return self.first_step + self.global_step

    def whole_model(self) -> nn.Module:
        """Return the model with all rows of its word embeddings; until the next step, `model` has them."""
        if self._rows is not None:
            self._rows.restore(map(self._learning_rate, range(self.finished_steps)), self.model, self.config)
        return self.model

    def _learning_rate(self, step: int) -> float:
        return self.config.learning_rate * self._learning_rate_factor(step)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self._rows is not None:
            self._rows.shrink()
        optimizer = fine_tuning_optimizer(self.model, self.config)
        if self.optimizer_state is not None:
            optimizer.load_state_dict(self.optimizer_state)
        return optimizer

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        set_learning_rate(self.trainer.optimizers[0], self._learning_rate(self.finished_steps))
        if self._rows is not None:
            self._rows.shrink()
        # Seeded by (seed, step), so that other consumers of random numbers in this process do not affect dropout.
        seed_device(self.device, seed_for(self.job.seed, "dropout", self.finished_steps))
        loss = self.job.kind.loss(self.model, batch, self.options)
        if not loss.requires_grad:
            raise nothing_to_train()
        return loss

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *limits: Any, **named: Any) -> None:
        self.grad_norm = clip_gradients(self.model.parameters(), self.config.max_grad_norm)


class DevEvaluation(pl.Callback):
    """Evaluates the model on dev after each epoch and at the job's fractions of the schedule.

    With early stopping, it ends training when dev has not become better for some epochs, and puts the weights of the
    best epoch back (Lightning's own compares in fp32, and restores weights from files only).
    An evaluation changes neither the weights nor the random numbers of later steps.

    Args:
        on_check: Called after each evaluation; an exception that it raises ends the run.
    """

    def __init__(
        self, job: FineTuningJob, *, steps_per_epoch: int, on_check: Callable[[DevCheck], None] | None
    ) -> None:
        self.checks: list[DevCheck] = []
        self.outcome: DevOutcome | None = None
        """The newest one, or with early stopping the best one of an epoch."""
        self._best_weights: dict[str, Tensor] = {}
        self._epochs_without_better = 0
        self._job, self._steps_per_epoch, self._on_check = job, steps_per_epoch, on_check
        num_epochs = job.config.num_epochs
        self._due = [
            (max(1, round(fraction * steps_per_epoch * num_epochs)), fraction)
            for fraction in job.checks
            if not any(math.isclose(fraction, epoch / num_epochs) for epoch in range(1, num_epochs + 1))
        ]
        """Steps after which fractions of the schedule are completed, without those at the ends of epochs."""
        self._newest = DevOutcome({}, {}, np.empty((0, 0)))

    def on_train_batch_end(self, trainer: pl.Trainer, module: FineTuningModule, *batch: Any) -> None:
        while self._due and self._due[0][0] <= module.finished_steps:
            self._evaluate(module.finished_steps, module, self._due.pop(0)[1], at_epoch_end=False)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        step = module.finished_steps
        share = step // self._steps_per_epoch / self._job.config.num_epochs
        self._evaluate(step, module, share, at_epoch_end=True)
        patience = self._job.config.early_stopping_epochs
        if patience is None:
            self.outcome = self._newest
        elif self.outcome is None or self._score(self._newest) > self._score(self.outcome):
            self.outcome, self._epochs_without_better = self._newest, 0
            self._best_weights = {name: tensor.clone() for name, tensor in module.whole_model().state_dict().items()}
        else:
            self._epochs_without_better += 1
            trainer.should_stop = self._epochs_without_better >= patience

    def on_train_end(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        if self._best_weights:
            module.whole_model().load_state_dict(self._best_weights)

    def _score(self, outcome: DevOutcome) -> float:
        """Return the tuned score of an outcome; NaN is the worst."""
        score = outcome.scores[self._job.kind.config.metric]
        return -math.inf if math.isnan(score) else score

    def _evaluate(self, step: int, module: FineTuningModule, share: float, *, at_epoch_end: bool) -> None:
        self._newest = evaluate_on_dev(self._job, module.whole_model())
        self._note(DevCheck(share, step // self._steps_per_epoch, at_epoch_end, self._newest.scores))

    def _note(self, check: DevCheck) -> None:
        self.checks.append(check)
        if self._on_check is not None:
            self._on_check(check)

    def early_stopping_state(self) -> dict[str, Any] | None:
        """Return what early stopping depends on as plain data; None without it, and before the first epoch ends."""
        if self.outcome is None or not self._best_weights:
            return None
        statistics = torch.from_numpy(self.outcome.statistics)
        best = [_floats(self.outcome.scores), _floats(self.outcome.calibration), statistics]
        return {"best": best, "weights": self._best_weights, "without_better": self._epochs_without_better}

    def restore(self, step: int, state: dict[str, Any]) -> None:
        """Restore the evaluations of a saved run up to a step, with the calls of `on_check`."""
        if (stopping := state["stopping"]) is not None:
            scores, calibration, statistics = stopping["best"]
            self.outcome = DevOutcome(scores, calibration, statistics.numpy())
            self._best_weights, self._epochs_without_better = stopping["weights"], stopping["without_better"]
        self._due = [one for one in self._due if one[0] > step]
        for check in state["checks"]:
            self._note(DevCheck(*check))


# Saving takes a twentieth of the time at most, on a slow disk too.
_SAVE_EVERY_S, _SHARE_OF_SAVING = 60.0, 0.05


class StoppedError(Exception):
    """A signal stopped the run, which is saved. Lightning would end the process for an interrupt."""


class Saving(pl.Callback):
    """Saves a run that often, and when a signal stops it: after a step, and the evaluation that follows it.

    It runs after the callbacks that it saves.
    """

    def __init__(self, folder: Path, title: str, evaluation: DevEvaluation, divergence: Divergence) -> None:
        self._title, self._evaluation, self._divergence = title, evaluation, divergence
        self._folder, self._due_at = CheckpointFolder(folder, keep=1), time.monotonic() + _SAVE_EVERY_S
        self._request, self._listening = StopRequest(), ExitStack()

    def resume(self, module: FineTuningModule, batches: Epochs) -> None:
        newest = next(filter(None, map(self._folder.load, reversed(self._folder.steps))), None)
        if newest is None:
            return
        if newest.state["num_trained"] != module.num_trained:
            warn(f"{self._folder.folder} is of another device; training starts at the first step")
            return
        module.whole_model().load_state_dict(newest.state["model"])
        module.first_step, module.optimizer_state = newest.step, newest.state["optimizer"]
        batches.num_taken = newest.step
        say(f"{self._title} resumes after step {newest.step:,} of {module.num_steps:,}")
        self._evaluation.restore(newest.step, newest.state)

    def on_train_start(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        self._listening.enter_context(self._request.listening())  # Lightning has just installed its own handlers

    def on_train_end(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        self._listening.close()
        if self._request.made:
            raise StoppedError(f"{self._title} was stopped as it ended; it resumes from its last checkpoint")

    def on_exception(self, trainer: pl.Trainer, module: FineTuningModule, exception: BaseException) -> None:
        self._listening.close()

    def on_train_batch_end(self, trainer: pl.Trainer, module: FineTuningModule, *batch: Any) -> None:
        # The last step of an epoch is followed by an evaluation first.
        if module.finished_steps % trainer.num_training_batches:
            self._save_if_due(trainer, module)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        if module.finished_steps < module.num_steps and not trainer.should_stop:
            self._save_if_due(trainer, module)

    def _save_if_due(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        begun, step = time.monotonic(), module.finished_steps
        if begun < self._due_at and not self._request.made:
            return
        self._divergence.read(module)
        checks = [[one.share, one.epoch, one.at_epoch_end, _floats(one.scores)] for one in self._evaluation.checks]
        state = {
            "num_trained": module.num_trained,
            "model": module.whole_model().state_dict(),
            "optimizer": trainer.optimizers[0].state_dict(),
            "checks": checks,
            "stopping": self._evaluation.early_stopping_state(),
        }
        self._folder.save(step, state)
        now = time.monotonic()
        self._due_at = now + max(_SAVE_EVERY_S, (now - begun) / _SHARE_OF_SAVING)
        if self._request.made:
            raise StoppedError(f"{self._title} was stopped and saved after step {step:,} of {module.num_steps:,}")


def _floats(values: Mapping[str, float]) -> dict[str, float]:
    """Return numbers as a checkpoint can hold them: NumPy's are not plain data."""
    return {name: float(value) for name, value in values.items()}


class Divergence(pl.Callback):
    """Ends a run whose loss or gradient norm is no longer finite."""

    def __init__(self, device: torch.device) -> None:
        self._every = 1 if device.type == "cpu" else _READ_EVERY_STEPS_ON_A_GPU
        self._unread: list[tuple[int, float, Tensor]] = []

    def on_train_batch_end(self, trainer: pl.Trainer, module: FineTuningModule, outputs: Any, *batch: Any) -> None:
        """Note the learning rate, loss and gradient norm of the step, and check them when enough are noted.

        Raises:
            DivergedError: One of them is not finite.
        """
        values = torch.stack([outputs["loss"].float(), module.grad_norm.detach().float()])
        lr = max(group["lr"] for group in trainer.optimizers[0].param_groups)
        self._unread.append((module.finished_steps, lr, values))
        if len(self._unread) >= self._every:
            self.read(module)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        self.read(module)

    def read(self, module: FineTuningModule) -> None:
        unread, self._unread = self._unread, []
        values = torch.stack([pair for _, _, pair in unread]).tolist() if unread else []
        for (step, lr, _), (loss, norm) in zip(unread, values, strict=True):
            if not (abs(loss) < math.inf and norm < math.inf):
                raise DivergedError(
                    f"The loss of step {step:,} is {loss} and the norm of its gradient {norm}, at a learning rate of "
                    f"{lr:.3g}: training has diverged. Lower fine_tuning.learning_rate, raise "
                    "fine_tuning.warmup_fraction, or lower fine_tuning.max_grad_norm (now "
                    f"{module.config.max_grad_norm:g}); if even a small rate fails, look for damaged weights or "
                    "numbers in the data."
                )


class Progress(pl.Callback):
    """Logs the progress of a run every so many seconds: steps, loss, time left."""

    def __init__(self, job: FineTuningJob) -> None:
        self._job, self._started = job, time.monotonic()
        self._losses: list[Tensor] = []

    def on_train_start(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        self._shown = TrainingProgress(
            self._job.title,
            first_step=module.first_step,
            num_steps=module.num_steps,
            every_s=self._job.runtime.progress_every_s,
            draws=False,  # several trials may run at once
        )

    def on_train_batch_end(self, trainer: pl.Trainer, module: FineTuningModule, outputs: Any, *batch: Any) -> None:
        step = module.finished_steps
        self._losses.append(outputs["loss"])
        if step == module.num_steps or not self._shown.is_due(step):  # the sweep says how a run ended
            return
        self._shown.note({"train/loss": float(torch.stack(self._losses).mean())})
        self._losses.clear()
        left_s = (time.monotonic() - self._started) / (step - module.first_step) * (module.num_steps - step)
        ends_s = self._job.ends_s
        of_all_s = None if ends_s is None else max(ends_s - time.time(), left_s)
        self._shown.show(step, left_s=left_s, of_all_s=of_all_s)


def train(
    job: FineTuningJob, model: nn.Module, on_check: Callable[[DevCheck], None] | None
) -> tuple[list[DevCheck], DevOutcome]:
    """Train a model in place; return the evaluations on dev and the last one, or the best with early stopping."""
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
    job = dataclasses.replace(job, config=dataclasses.replace(config, num_epochs=num_epochs))
    class_weights = None
    if config.class_weights == "balanced":
        # rows / (labels * rows of the label): their mean over the rows is 1; 0 for a label absent from train.
        counts = kind.label_counts(job.train.rows)
        weights = np.where(counts > 0, counts.sum() / (len(counts) * np.maximum(counts, 1)), 0.0)
        class_weights = torch.tensor(weights, dtype=torch.float32, device=job.machine.device)
    options = LossOptions(
        config.label_smoothing, class_weights, config.focal_gamma, config.soft_weight, config.soft_temperature
    )
    module = FineTuningModule(job, model, options, batches)
    evaluation = DevEvaluation(job, steps_per_epoch=len(batches), on_check=on_check)
    divergence = Divergence(job.machine.device)
    callbacks = [divergence, Progress(job), evaluation]
    if job.checkpoints is not None:
        saving = Saving(job.checkpoints, job.title, evaluation, divergence)
        saving.resume(module, batches)
        callbacks.append(saving)
    epochs, root = num_epochs - batches.num_taken // len(batches), Path(tempfile.gettempdir())
    trainer = build_trainer(job.machine, job.runtime, callbacks=callbacks, max_epochs=epochs, root=root)
    try:
        run_trainer(trainer, module, batches)
    except StoppedError as stopped:
        raise TrainingInterrupted(str(stopped)) from None
    finally:
        del trainer, module, callbacks
        gc.collect()  # they refer to each other, and hold several times the memory of the model
    assert evaluation.outcome is not None  # every epoch ends with an evaluation
    return evaluation.checks, evaluation.outcome
