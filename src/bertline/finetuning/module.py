"""The LightningModule of fine-tuning: AdamW, linear warm-up and decay (paper, section 4 and A.3)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from bertline.finetuning.finetune import DevEvaluations, FineTuningJob
from bertline.finetuning.parameter_groups import fine_tuning_optimizer, nothing_to_train
from bertline.finetuning.progress import LossMonitor, RunProgress
from bertline.finetuning.task_kind import LossOptions
from bertline.foundation.seeds import seed_for
from bertline.training.config import LinearScheduleConfig
from bertline.training.devices import seed_device
from bertline.training.groupwise import clip_gradients
from bertline.training.optimizers.weights import set_learning_rate
from bertline.training.schedules import learning_rate_factor


class FineTuningData(pl.LightningDataModule):
    """Data module over training batches that reshuffle themselves each epoch."""

    def __init__(self, batches: Iterable[dict[str, Tensor]]) -> None:
        super().__init__()
        self._batches = batches

    def train_dataloader(self) -> Iterable[dict[str, Tensor]]:
        """Return the same batches object each time."""
        return self._batches


class FineTuningModule(pl.LightningModule):
    """Lightning module that trains the model of any kind of task.

    Dev is evaluated at epoch ends, where early stopping may end the run, and at the job's shares of the schedule.

    Args:
        job: The run.
        model: Model with its initial weights; frozen modules are frozen already.
        options: Options of the loss.
        evaluations: Dev evaluations of the run.
        steps_per_epoch: Optimizer steps per epoch.
    """

    def __init__(
        self,
        job: FineTuningJob,
        model: nn.Module,
        options: LossOptions,
        evaluations: DevEvaluations,
        *,
        steps_per_epoch: int,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.job, self.config, self.model, self.options = job, job.config, model, options
        self.evaluations = evaluations
        self.steps_per_epoch = steps_per_epoch
        self.num_steps = steps_per_epoch * self.config.num_epochs
        self.finished_steps = 0
        self.losses = LossMonitor(job.machine.device, max_grad_norm=self.config.max_grad_norm)
        self.progress = RunProgress(self.num_steps, every_s=job.runtime.progress_every_s)
        self.waiting = steps_of_shares(job.checks, num_steps=self.num_steps, steps_per_epoch=steps_per_epoch)
        warmup = round(self.config.warmup_fraction * self.num_steps)
        schedule = LinearScheduleConfig(kind="linear", num_warmup_steps=warmup)
        self.learning_rate_factor = learning_rate_factor(schedule, self.num_steps)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW with the betas and epsilon of the BERT reference code."""
        return fine_tuning_optimizer(self.model, self.config)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Take one optimizer step."""
        started = time.monotonic()
        optimizer = self.optimizers(use_pl_optimizer=False)
        # Seeded by (seed, step), so that other consumers of random numbers in this process do not affect dropout.
        seed_device(self.device, seed_for(self.job.seed, "dropout", self.finished_steps))
        lr = self.config.learning_rate * self.learning_rate_factor(self.finished_steps)
        set_learning_rate(optimizer, lr)
        optimizer.zero_grad()
        loss = self.job.kind.loss(self.model, batch, self.options)
        if not loss.requires_grad:
            raise nothing_to_train()
        self.manual_backward(loss)
        grad_norm = clip_gradients(self.model.parameters(), self.config.max_grad_norm)
        optimizer.step()
        self.finished_steps += 1
        self.losses.observe(self.finished_steps, lr, loss, grad_norm)
        self.progress.step(self.finished_steps, batch, loss, time.monotonic() - started)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Evaluate on dev if a share of the schedule is completed."""
        while self.waiting and self.waiting[0][0] <= self.finished_steps:
            self._evaluate(self.waiting.pop(0)[1], at_epoch_end=False)

    def on_train_epoch_end(self) -> None:
        """Check the remaining losses, evaluate on dev, and stop if the patience is exhausted."""
        self.losses.read()
        self._evaluate(self.finished_steps // self.steps_per_epoch / self.config.num_epochs, at_epoch_end=True)
        self.trainer.should_stop = self.evaluations.should_stop

    def _evaluate(self, share: float, *, at_epoch_end: bool) -> None:
        step = self.finished_steps
        epoch = step // self.steps_per_epoch
        self.evaluations.evaluate(self.model, step=step, share=share, epoch=epoch, at_epoch_end=at_epoch_end)


def steps_of_shares(shares: Sequence[float], *, num_steps: int, steps_per_epoch: int) -> list[tuple[int, float]]:
    """Return the step (at least 1) at which each share of the schedule is completed, leaving out shares at epoch ends.

    >>> steps_of_shares([0.125, 0.25, 0.5], num_steps=20, steps_per_epoch=10)
    [(2, 0.125), (5, 0.25)]
    """
    ends = [epoch * steps_per_epoch / num_steps for epoch in range(1, num_steps // steps_per_epoch + 1)]
    return [
        (max(1, round(share * num_steps)), share)
        for share in shares
        if not any(math.isclose(share, end) for end in ends)
    ]
