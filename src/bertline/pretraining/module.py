"""LightningModule for pretraining: one Lightning batch is this rank's share of one optimizer step."""

from __future__ import annotations

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
from bertline.modeling.bert import LanguageModelOutput
from bertline.modeling.dropout import Dropout, mask_keys
from bertline.pretraining.data import COUNTS, StepBatch, expanded
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.objectives.base import Objective, means, sum_names, weighted_loss
from bertline.training.devices import Machine, seed_device, start_sum, sum_over_ranks
from bertline.training.groupwise import clip_gradients, keeping_state, skip_unless_finite
from bertline.training.optimizers.weights import set_learning_rate
from bertline.training.private_api import inside_ddp_forward
from bertline.training.schedules import learning_rate_factor

LOG_EVERY_STEPS = 20
"""Number of steps per row of metrics."""


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
        self.learning_rate_factor = learning_rate_factor(job.schedule, job.pretrain.num_steps)
        self.finished_steps = 0
        self.interval = IntervalSums(machine.device, sum_names(job.objective))
        self.optimizer_state: dict[str, Any] | None = None
        """Optimizer state to resume from; None for a new optimizer."""
        self.frozen_layout: dict[str, Any] | None = None
        """What dropout masks depend on besides seed and step; see `pretraining.row_layout.frozen_layout`."""

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
        """Compute a step on these micro-batches and skip its update: what it needs is allocated, and nothing changes.

        Weights, optimizer, random generators and sums stay as they are, also if an error ends it.
        """
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
    """Runs the model on a micro-batch and computes the sums of the objective.

    The losses are sums, not means: the caller divides by the counts of the global batch, so that every target has the
    same weight.
    """

    def __init__(self, model: LanguageModel, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums (`Objective.sums`) of arrays of `examples.masking`, or of rows of `examples.packing`.

        Without `attention_mask`, no row has padding.
        """
        return self.objective.sums(self.output(batch), batch)

    def output(self, batch: Mapping[str, Tensor]) -> LanguageModelOutput:
        """Return the output of the model on such a batch."""
        return self.objective.output(self.model, batch)


_STEP_SUMS = ("grad_norm", "steps", "skipped_steps")
"""Sums that every rank computes by itself, with the same values on all ranks."""


class IntervalSums:
    """Sums of an objective, and counts, since the last row of metrics.

    Model outputs stay on the device: waiting for them in each step would leave the device idle. A step whose gradient
    norm is not finite is skipped by the optimizer; it is counted here, but only the `timed_*` counts, from which
    throughput follows, include it.
    """

    def __init__(self, device: torch.device, names: Sequence[str]) -> None:
        self._device = device
        self._names = tuple(names)
        self.clear()

    def clear(self) -> None:
        """Start the next interval."""
        names = (*self._names, *COUNTS, *_STEP_SUMS, *(f"timed_{name}" for name in COUNTS))
        self._before = dict.fromkeys(names, 0.0)
        self._step: Tensor | None = None
        self._steps: list[tuple[Tensor, dict[str, int]]] = []

    def add_micro_batch(self, sums: Mapping[str, Tensor]) -> None:
        """Add the sums of one micro-batch."""
        values = torch.stack([sums[name] for name in self._names]).detach()
        self._step = values if self._step is None else self._step + values

    def add_step(self, grad_norm: Tensor, batch: StepBatch) -> None:
        """Finish a step: add the counts of this rank's share, and the gradient norm, which is equal on all ranks."""
        assert self._step is not None  # a step has a micro-batch
        counts = {name: int(batch[f"num_{name}"]) for name in COUNTS}  # type: ignore[literal-required]
        self._steps.append((torch.cat([self._step, grad_norm.detach().reshape(1)]), counts))
        self._step = None

    def total(self) -> dict[str, float]:
        """Return the sums over all ranks (for steps and norms: of this rank). Waits for the device."""
        total = dict(self._before)
        computed = torch.stack([values for values, _ in self._steps]).tolist() if self._steps else []
        for values, (_, counts) in zip(computed, self._steps, strict=True):
            is_skipped = not math.isfinite(values[-1])
            total["steps"] += 1
            total["skipped_steps"] += is_skipped
            if not is_skipped:
                for name, value in (*zip((*self._names, "grad_norm"), values, strict=True), *counts.items()):
                    total[name] += value
            for name, count in counts.items():
                total[f"timed_{name}"] += count
        names = [name for name in total if name not in _STEP_SUMS]
        summed = sum_over_ranks([total[name] for name in names], self._device)
        return {**total, **dict(zip(names, summed, strict=True))}

    def restore(self, total: Mapping[str, float], *, is_first_rank: bool) -> None:
        """Resume from the `total` of a checkpoint: the first rank carries the sums of all ranks."""
        self.clear()
        self._before.update({name: value for name, value in total.items() if is_first_rank or name in _STEP_SUMS})


def training_metrics(total: Mapping[str, float], objective: Objective) -> dict[str, float]:
    """Return the loss and the means of an interval; NaN if all its steps were skipped."""
    averages, steps = means(objective, total), total["steps"] - total["skipped_steps"]
    return {
        "train/loss": weighted_loss(objective, averages),
        **{f"train/{name}": mean for name, mean in averages.items()},
        "optim/grad_norm": total["grad_norm"] / steps if steps else math.nan,
        "optim/skipped_steps": total["skipped_steps"],
    }
