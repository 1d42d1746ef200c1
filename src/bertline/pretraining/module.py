"""LightningModule for pretraining: one Lightning batch is this rank's share of one optimizer step."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bertline.encoders.loading import LanguageModel
from bertline.foundation.seeds import seed_for
from bertline.modeling.attention_choice import AttentionKind
from bertline.modeling.bert import set_attention
from bertline.modeling.dropout import Dropout, mask_keys
from bertline.pretraining.data import StepBatch, expanded
from bertline.pretraining.health import IntervalSums
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.objectives.base import Objective, sum_names
from bertline.training.devices import Machine, seed_device, start_sum
from bertline.training.groupwise import clip_gradients, keeping_state, set_learning_rate, skip_unless_finite
from bertline.training.private_api import inside_ddp_forward


class PretrainingModule(pl.LightningModule):
    """Takes and counts optimizer steps.

    Optimization is manual because the loss is a mean over the targets of the global batch: Lightning's gradient
    accumulation would average the means of the micro-batches, and DDP those of the ranks.
    """

    def __init__(self, model: LanguageModel, job: PretrainJob, machine: Machine) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.losses = PreTrainingLosses(model, job.objective)
        self.objective: Objective = job.objective
        self.optimizer_config = job.optimizer
        self.machine = machine
        self.seed = job.pretrain.seed
        self.learning_rate_factor = job.schedule.learning_rate_factor(job.pretrain.num_steps)
        self.finished_steps = 0
        self.interval = IntervalSums(machine.device, sum_names(job.objective))
        self.optimizer_state: dict[str, Any] | None = None
        """Optimizer state to resume from; None for a new optimizer."""
        self.frozen_layout: dict[str, Any] = {}
        """What dropout masks depend on besides seed and step (`pretraining.plan.frozen_layout`); empty: a new run."""
        self.attention_kinds: dict[int, AttentionKind] = {}
        """Attention kernel for each length of rows; a compiled graph is specific to both, and used again."""

    @property
    def model(self) -> LanguageModel:
        """Model being trained."""
        return self.losses.model

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step (0-based)."""
        return self.optimizer_config.lr * self.learning_rate_factor(step)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer, without Lightning's wrapper."""
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)  # there is exactly one
        return optimizer

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Build the optimizer once the weights are on their device, and load the state to resume from."""
        optimizer = self.optimizer_config.build(self.losses, precision=self.machine.precision)
        if self.optimizer_state is not None:
            optimizer.load_state_dict(self.optimizer_state)
            self.optimizer_state = None
        return optimizer

    def training_step(self, batch: StepBatch, batch_idx: int) -> None:
        """Take one optimizer step: the gradient of a mean over the global batch, from all its micro-batches."""
        optimizer = self.optimizers()
        # Dropout that is drawn is a function of (seed, step, rank): a resumed run needs no saved generator state.
        seed_device(self.machine.device, seed_for(self.seed, "dropout", self.finished_steps, self.machine.ranks.rank))
        set_learning_rate(optimizer, self.learning_rate(self.finished_steps))
        optimizer.zero_grad()
        kind = self.attention_kinds.get(batch["micro_batches"][0]["input_ids"].shape[1], self.model.attention)
        if self.model.attention != kind:
            set_attention(self.model, kind)
        sum_of_targets = start_sum(batch["num_targets"], self.machine.device)  # needed only after a forward pass
        needs_tokens = any(term.count == "tokens" for term in self.objective.terms)
        sum_of_tokens = start_sum(batch["num_tokens"], self.machine.device) if needs_tokens else lambda: 1
        num_targets: Tensor | float | None = None
        dropout_keys = self._dropout_keys()
        last = len(batch["micro_batches"]) - 1
        for index, micro_batch in enumerate(batch["micro_batches"]):
            with nullcontext() if index == last else self._without_synchronisation():
                sums = self.losses(expanded(micro_batch, dropout_keys))
                if num_targets is None:
                    num_targets, num_tokens = sum_of_targets(), sum_of_tokens()
                # DDP averages the ranks' gradients; the factor `world_size` turns the average into their sum.
                loss = self.objective.loss(
                    sums,
                    targets=num_targets,
                    sequences=batch["global_batch_size"],
                    tokens=num_tokens,
                    factor=self.machine.ranks.world_size,
                )
                self.manual_backward(loss)
            self.interval.add_micro_batch(sums)
        grad_norm = self._clip()
        skip_unless_finite(self.optimizer, grad_norm)
        optimizer.step()
        self.interval.add_step(grad_norm, batch)
        self.finished_steps += 1

    def rehearse(self, micro_batches: Sequence[Mapping[str, Tensor]]) -> None:
        """Compute a step on these micro-batches without its update: what it needs is allocated, and nothing changes."""
        optimizer, device = self.optimizer, self.machine.device
        generators = torch.random.fork_rng([device] if device.type == "cuda" else [])
        precision = self.trainer.strategy.precision_plugin.train_step_context()
        try:
            with generators, keeping_state(optimizer), precision, self._without_synchronisation(compiles_for_ddp=True):
                for micro_batch in micro_batches:
                    on_device = {name: values.to(device) for name, values in micro_batch.items()}
                    sums = self.losses(expanded(on_device, self._dropout_keys()))
                    self.objective.loss(sums, targets=1, sequences=1).backward()
                skip_unless_finite(optimizer, self._clip() * math.nan)
                optimizer.step()
        finally:
            optimizer.zero_grad()

    def _dropout_keys(self) -> Tensor | None:
        """Return the keys of this step's `TokenMasks`, the same on all ranks; None if dropout draws, or there is none.

        On a CPU the masks are a function of (seed, step, place of the sequence in the step, position, site).
        """
        rates = [module.p for module in self.losses.modules() if isinstance(module, Dropout)]
        if self.machine.device.type != "cpu" or not any(rates):
            return None
        return mask_keys(seed_for(self.seed, "dropout", self.finished_steps), len(rates))

    @contextmanager
    def _without_synchronisation(self, *, compiles_for_ddp: bool = False) -> Iterator[None]:
        """Disable the exchange of gradients, which is needed once per step, after the last micro-batch.

        Outside of a training step, `compiles_for_ddp` lets the compiler split its graphs as DDP needs them later.
        """
        wrapped = self.trainer.strategy.model
        if not isinstance(wrapped, DistributedDataParallel):
            yield
            return
        with wrapped.no_sync(), inside_ddp_forward(wrapped) if compiles_for_ddp else nullcontext():
            yield

    def _clip(self) -> Tensor:
        """Clip the gradients to the configured maximum norm and return their norm before clipping."""
        return clip_gradients(self.losses.parameters(), self.optimizer_config.max_grad_norm)


class PreTrainingLosses(nn.Module):
    """Runs the model on a micro-batch and computes the sums of the objective, which the caller divides by counts."""

    def __init__(self, model: LanguageModel, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums (`Objective.sums`) of a batch as `Objective.output` takes it."""
        return self.objective.sums(self.objective.output(self.model, batch), batch)
