"""The LightningModule of fine-tuning: AdamW, linear warm-up and decay (paper, section 4 and A.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.kinds.base import LossOptions, TaskKind
from bertline.foundation.seeds import seed_for
from bertline.training.config import AdamWConfig, LinearScheduleConfig
from bertline.training.optimizers import build_optimizer, set_learning_rate
from bertline.training.schedules import learning_rate_factor

# Of the reference code (optimization.py); fine-tuning varies the other values only.
_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-6


class FineTuningData(pl.LightningDataModule):
    """The training batches; they make themselves anew for each epoch."""

    def __init__(self, batches: Iterable[dict[str, Tensor]]) -> None:
        super().__init__()
        self._batches = batches

    def train_dataloader(self) -> Iterable[dict[str, Tensor]]:
        """The same object every time."""
        return self._batches


class FineTuningModule(pl.LightningModule):
    """Trains a model of any kind of task.

    Args:
        model: With the weights to start from.
        config: The values of this run.
        kind: Computes the loss.
        options: What the loss is computed with.
        num_steps: Optimizer steps of the whole run.
        seed: Root of dropout's randomness.
        after_epoch: Called with the number of finished epochs; may raise to stop the run.
    """

    def __init__(
        self,
        model: nn.Module,
        config: FineTuningConfig,
        kind: TaskKind[Any, Any, Any],
        options: LossOptions,
        *,
        num_steps: int,
        seed: int,
        after_epoch: Callable[[int], None],
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.config = config
        self.kind = kind
        self.options = options
        self.seed = seed
        self.after_epoch = after_epoch
        self.finished_steps = 0
        schedule = LinearScheduleConfig(kind="linear", num_warmup_steps=round(config.warmup_fraction * num_steps))
        self.learning_rate_factor = learning_rate_factor(schedule, num_steps)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW with the values of the reference code."""
        return build_optimizer(
            self.model,
            AdamWConfig(
                kind="adamw",
                lr=self.config.learning_rate,
                beta1=_BETA1,
                beta2=_BETA2,
                eps=_EPS,
                weight_decay=self.config.weight_decay,
                max_grad_norm=self.config.max_grad_norm,
            ),
        )

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Take one optimizer step."""
        optimizer = self.optimizers(use_pl_optimizer=False)
        # A function of (seed, step): what else draws random numbers in this process does not matter.
        torch.manual_seed(seed_for(self.seed, "dropout", self.finished_steps))
        set_learning_rate(optimizer, self.config.learning_rate * self.learning_rate_factor(self.finished_steps))
        optimizer.zero_grad()
        self.manual_backward(self.kind.loss(self.model, batch, self.options))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        optimizer.step()
        self.finished_steps += 1

    def on_train_epoch_end(self) -> None:
        """Hand over to whoever scores."""
        self.after_epoch(self.current_epoch + 1)
