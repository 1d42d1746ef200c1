"""The LightningModule of fine-tuning: AdamW, linear warm-up and decay (paper, section 4 and A.3)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.dev_evaluation import DevEvaluations, steps_of_shares
from bertline.finetuning.parameter_groups import fine_tuning_optimizer, nothing_to_train
from bertline.finetuning.progress import LossMonitor, RunProgress
from bertline.finetuning.task_kind import LossOptions, TaskKind
from bertline.foundation.seeds import seed_for
from bertline.training.config import LinearScheduleConfig
from bertline.training.devices import seed_device
from bertline.training.health import clip_gradients
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

    Args:
        model: Model with its initial weights; frozen modules are frozen already.
        config: Configuration of the run.
        kind: Kind of the task, which computes the loss.
        options: Options of the loss.
        steps_per_epoch: Optimizer steps per epoch.
        seed: Root seed of dropout.
    """

    def __init__(
        self,
        model: nn.Module,
        config: FineTuningConfig,
        kind: TaskKind[Any, Any, Any],
        options: LossOptions,
        *,
        steps_per_epoch: int,
        seed: int,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.config = config
        self.kind = kind
        self.options = options
        self.seed = seed
        self.steps_per_epoch = steps_per_epoch
        self.num_steps = steps_per_epoch * config.num_epochs
        self.finished_steps = 0
        self.losses: LossMonitor | None = None
        self.newest: tuple[Tensor, float] | None = None
        """Loss of the latest step and its duration in seconds."""
        schedule = LinearScheduleConfig(kind="linear", num_warmup_steps=round(config.warmup_fraction * self.num_steps))
        self.learning_rate_factor = learning_rate_factor(schedule, self.num_steps)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW with the betas and epsilon of the BERT reference code."""
        return fine_tuning_optimizer(self.model, self.config)

    def on_train_start(self) -> None:
        """Start watching the loss."""
        self.losses = LossMonitor(self.device, max_grad_norm=self.config.max_grad_norm)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Take one optimizer step."""
        started = time.monotonic()
        optimizer = self.optimizers(use_pl_optimizer=False)
        # Seeded by (seed, step), so that other consumers of random numbers in this process do not affect dropout.
        seed_device(self.device, seed_for(self.seed, "dropout", self.finished_steps))
        lr = self.config.learning_rate * self.learning_rate_factor(self.finished_steps)
        set_learning_rate(optimizer, lr)
        optimizer.zero_grad()
        loss = self.kind.loss(self.model, batch, self.options)
        if not loss.requires_grad:
            raise nothing_to_train()
        self.manual_backward(loss)
        grad_norm = clip_gradients(self.model.parameters(), self.config.max_grad_norm)
        optimizer.step()
        self.finished_steps += 1
        assert self.losses is not None  # made before the first step
        self.losses.observe(self.finished_steps, lr, loss, grad_norm)
        self.newest = (loss.detach(), time.monotonic() - started)

    def on_train_epoch_end(self) -> None:
        """Check the remaining losses before the epoch is evaluated."""
        assert self.losses is not None
        self.losses.read()


class EvaluateOnDev(pl.Callback):
    """Callback that evaluates on dev at epoch ends and at given shares of the schedule, and applies early stopping.

    Args:
        evaluations: Dev evaluations of the run.
        module: Module that is trained.
        shares: Fractions of the schedule, ascending, in (0, 1).
    """

    def __init__(self, evaluations: DevEvaluations, module: FineTuningModule, shares: Iterable[float]) -> None:
        self._evaluations = evaluations
        self._waiting = steps_of_shares(
            list(shares), num_steps=module.num_steps, steps_per_epoch=module.steps_per_epoch
        )

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: FineTuningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Evaluate on dev if a share of the schedule is completed."""
        step = module.finished_steps
        while self._waiting and self._waiting[0][0] <= step:
            _, share = self._waiting.pop(0)
            epoch = step // module.steps_per_epoch
            self._evaluations.evaluate(module.model, step=step, share=share, epoch=epoch, at_epoch_end=False)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: FineTuningModule) -> None:
        """Evaluate on dev, and stop if the patience is exhausted."""
        step = module.finished_steps
        epoch = step // module.steps_per_epoch
        share = epoch / module.config.num_epochs
        self._evaluations.evaluate(module.model, step=step, share=share, epoch=epoch, at_epoch_end=True)
        trainer.should_stop = self._evaluations.should_stop


class ShowProgress(pl.Callback):
    """Callback that reports each step to `RunProgress`."""

    def __init__(self, progress: RunProgress) -> None:
        self._progress = progress

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: FineTuningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step."""
        assert module.newest is not None  # a step has just been taken
        loss, took_s = module.newest
        self._progress.step(module.finished_steps, batch, loss, took_s)
