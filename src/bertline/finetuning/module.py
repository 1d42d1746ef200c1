"""The LightningModule of fine-tuning and its callbacks: dev, early stopping, the check of the loss, and progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from bertline.finetuning.finetune import DevCheck, DevOutcome, DivergedError, FineTuningJob, evaluate_on_dev
from bertline.finetuning.parameter_groups import fine_tuning_optimizer, nothing_to_train
from bertline.foundation.formats import duration
from bertline.foundation.progress import say
from bertline.foundation.seeds import seed_for
from bertline.kinds.base import LossOptions
from bertline.training.config import LinearScheduleConfig
from bertline.training.devices import seed_device
from bertline.training.groupwise import clip_gradients


class StepSchedule(LRScheduler):
    """A factor of the peak `lr` by step, for PyTorch; the `rate_factor` of a parameter group multiplies it."""

    def __init__(self, optimizer: torch.optim.Optimizer, lr: float, factor: Callable[[int], float]) -> None:
        self._lr, self._factor = lr, factor
        super().__init__(optimizer)

    def get_lr(self) -> list[float | Tensor]:
        """Return the learning rate of the next step for each parameter group."""
        lr = self._lr * self._factor(self.last_epoch)
        return [lr * group.get("rate_factor", 1.0) for group in self.optimizer.param_groups]


# Reading a value from a GPU synchronizes with it, so losses are read in groups there; on a CPU reading is free.
_READ_EVERY_STEPS_ON_A_GPU = 50


class FineTuningModule(pl.LightningModule):
    """Trains the model of any kind of task: AdamW, linear warm-up, and decay to zero after `num_steps` steps (paper,
    section 4 and A.3)."""

    def __init__(self, job: FineTuningJob, model: nn.Module, options: LossOptions, *, num_steps: int) -> None:
        super().__init__()
        self.job, self.config, self.model, self.options = job, job.config, model, options
        self.num_steps = num_steps
        self.grad_norm = torch.zeros(())
        """Norm of the newest gradient, before clipping."""

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return AdamW with the betas and epsilon of the BERT reference code, and its schedule by step."""
        optimizer = fine_tuning_optimizer(self.model, self.config)
        warmup = round(self.config.warmup_fraction * self.num_steps)
        schedule_config = LinearScheduleConfig(kind="linear", num_warmup_steps=warmup)
        factor = schedule_config.learning_rate_factor(self.num_steps)
        schedule = StepSchedule(optimizer, self.config.learning_rate, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        # Seeded by (seed, step), so that other consumers of random numbers in this process do not affect dropout.
        seed_device(self.device, seed_for(self.job.seed, "dropout", self.global_step))
        loss = self.job.kind.loss(self.model, batch, self.options)
        if not loss.requires_grad:
            raise nothing_to_train()
        return loss

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *limits: Any, **named: Any) -> None:
        """Clip the gradient to the configured norm, and keep its norm before."""
        self.grad_norm = clip_gradients(self.model.parameters(), self.config.max_grad_norm)


class DevEvaluation(pl.Callback):
    """Evaluates the model on dev after each epoch and at the job's fractions of the schedule.

    An evaluation changes neither the weights nor the random numbers of later steps.

    Args:
        on_check: Called after each evaluation; an exception that it raises ends the run.
    """

    def __init__(
        self, job: FineTuningJob, *, steps_per_epoch: int, on_check: Callable[[DevCheck], None] | None
    ) -> None:
        self.checks: list[DevCheck] = []
        self.newest: DevOutcome | None = None
        self._job, self._steps_per_epoch, self._on_check = job, steps_per_epoch, on_check
        num_steps = steps_per_epoch * job.config.num_epochs
        self._due = steps_of_fractions(job.checks, num_steps=num_steps, steps_per_epoch=steps_per_epoch)
        self._evaluated_step = -1

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: FineTuningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Evaluate if a fraction of the schedule is completed."""
        while self._due and self._due[0][0] <= trainer.global_step:
            self._evaluate(trainer.global_step, module, self._due.pop(0)[1], at_epoch_end=False)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        """Evaluate after each epoch."""
        step = trainer.global_step
        share = step // self._steps_per_epoch / self._job.config.num_epochs
        self._evaluate(step, module, share, at_epoch_end=True)

    def _evaluate(self, step: int, module: FineTuningModule, share: float, *, at_epoch_end: bool) -> None:
        if self._evaluated_step != step:  # two fractions may round to one step
            self.newest, self._evaluated_step = evaluate_on_dev(self._job, module.model), step
        assert self.newest is not None
        self.checks.append(DevCheck(share, step // self._steps_per_epoch, at_epoch_end, self.newest.scores))
        if self._on_check is not None:
            self._on_check(self.checks[-1])


def steps_of_fractions(fractions: Sequence[float], *, num_steps: int, steps_per_epoch: int) -> list[tuple[int, float]]:
    """Return the step (at least 1) at which each fraction of the schedule is completed, without those at epoch ends."""
    ends = [epoch * steps_per_epoch / num_steps for epoch in range(1, num_steps // steps_per_epoch + 1)]
    return [
        (max(1, round(fraction * num_steps)), fraction)
        for fraction in fractions
        if not any(math.isclose(fraction, end) for end in ends)
    ]


class EarlyStopping(pl.Callback):
    """Ends training when dev has not become better for some epochs, and puts the weights of the best epoch back.

    Lightning's own compares in fp32, and restores weights from files only.
    `evaluation` runs before it at the end of each epoch. Of `metric`, higher is better, and NaN is the worst.
    """

    def __init__(self, evaluation: DevEvaluation, *, metric: str, patience: int) -> None:
        self.best: DevOutcome | None = None
        self._evaluation, self._metric, self._patience = evaluation, metric, patience
        self._best_weights: dict[str, Tensor] = {}
        self._epochs_without_better = 0

    def on_train_epoch_end(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        """Keep the weights of an epoch that is better than all before; stop after too many that are not."""
        newest = self._evaluation.newest
        assert newest is not None
        if self.best is None or self._score(newest) > self._score(self.best):
            self.best, self._epochs_without_better = newest, 0
            self._best_weights = {name: tensor.clone() for name, tensor in module.model.state_dict().items()}
        else:
            self._epochs_without_better += 1
            trainer.should_stop = self._epochs_without_better >= self._patience

    def on_train_end(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        """Put the weights of the best epoch back."""
        module.model.load_state_dict(self._best_weights)

    def _score(self, outcome: DevOutcome) -> float:
        score = outcome.scores[self._metric]
        return -math.inf if math.isnan(score) else score


class Divergence(pl.Callback):
    """Ends a run whose loss or gradient norm is no longer finite."""

    def __init__(self, device: torch.device) -> None:
        self._every = 1 if device.type == "cpu" else _READ_EVERY_STEPS_ON_A_GPU
        self._lr = 0.0
        self._unread: list[tuple[int, float, Tensor]] = []

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, module: FineTuningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Note the learning rate of the step."""
        self._lr = max(group["lr"] for group in optimizer.param_groups)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: FineTuningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the loss and the gradient norm of the step, and check them when enough are noted.

        Raises:
            DivergedError: One of them is not finite.
        """
        values = torch.stack([outputs["loss"].float(), module.grad_norm.detach().float()])
        self._unread.append((trainer.global_step, self._lr, values))
        if len(self._unread) >= self._every:
            self._read(module)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        """Check what was noted, as after a step."""
        self._read(module)

    def _read(self, module: FineTuningModule) -> None:
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
    """Logs the progress of a run every `every_s` seconds: steps, loss, tokens per second, time left."""

    def __init__(self, title: str, *, every_s: float) -> None:
        self._title, self._every_s = title, every_s
        self._started = self._last_line = time.monotonic()
        self._begin_interval()

    def _begin_interval(self) -> None:
        self._loss: Tensor | None = None
        self._tokens: list[Tensor] = []
        self._busy_s = 0.0
        self._steps = 0

    def on_train_batch_start(self, trainer: pl.Trainer, module: FineTuningModule, batch: Any, batch_idx: int) -> None:
        """Note when the step starts."""
        self._step_started = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: FineTuningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step, and log a line if one is due."""
        now, step, num_steps = time.monotonic(), trainer.global_step, module.num_steps
        loss = outputs["loss"]
        self._loss = loss if self._loss is None else self._loss + loss
        self._tokens += [mask.sum() for name, mask in batch.items() if name.endswith("attention_mask")]
        self._busy_s += now - self._step_started
        self._steps += 1
        if now - self._last_line < self._every_s or step == num_steps:
            return
        self._last_line = now
        left_s = (now - self._started) / step * (num_steps - step)
        tokens = sum(int(count) for count in self._tokens)
        speed = f", {tokens / self._busy_s:,.0f} tokens/s" if tokens else ""
        say(
            f"{self._title}: step {step:,} of {num_steps:,}, loss {float(self._loss) / self._steps:.3f}{speed}, "
            f"{duration(left_s)} left"
        )
        self._begin_interval()
