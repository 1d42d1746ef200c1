"""The LightningModule of fine-tuning: AdamW, linear warm-up and decay (paper, section 4 and A.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from bertline.finetuning.finetune import FineTuningJob
from bertline.finetuning.parameter_groups import fine_tuning_optimizer, nothing_to_train
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


class FineTuningData(pl.LightningDataModule):
    """Data module over training batches that reshuffle themselves each epoch."""

    def __init__(self, batches: Iterable[dict[str, Tensor]]) -> None:
        super().__init__()
        self._batches = batches

    def train_dataloader(self) -> Iterable[dict[str, Tensor]]:
        """Return the same batches object each time."""
        return self._batches


class FineTuningModule(pl.LightningModule):
    """Lightning module that trains the model of any kind of task; the schedule ends after `num_steps` steps."""

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
