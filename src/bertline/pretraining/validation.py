"""Validation: the held-out losses at their cadence, the best step so far, and the callback that runs all probes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.metrics_log import MetricsLog
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.divergence import DivergenceGuard
from bertline.pretraining.module import PreTrainingLosses, PretrainingModule
from bertline.pretraining.objectives.base import means, sum_names
from bertline.pretraining.plan import Plan, shuffled
from bertline.training.clock import TrainingClock
from bertline.training.devices import Machine, sum_over_ranks
from bertline.training.probe import DueProbes, Probe, evaluating

_BATCH_TOKENS = 8192


@dataclass(kw_only=True, eq=False)
class Validation(pl.Callback):
    """Runs the probes that are due before the first step and after a step, and logs what they measure."""

    due: DueProbes
    metrics_log: MetricsLog  # Lightning gives each callback an attribute `log`
    clock: TrainingClock
    guard: DivergenceGuard
    """After a failure nothing is measured."""

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Run the probes of a new run."""
        if module.finished_steps == 0:
            self._run(module)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Run the probes that are due."""
        if self.guard.failure is None:
            self._run(module)

    def _run(self, module: PretrainingModule) -> None:
        step = module.finished_steps
        due = self.due.after(step)
        if due:
            with self.clock.paused():
                metrics = {key: value for probe in due for key, value in probe.probe(step).items()}
            if metrics and module.machine.ranks.is_first:
                self.metrics_log.log(step, metrics)


@dataclass
class ValidationProbe(Probe):
    """Measures the losses and metrics of the objective, `val/NAME`, at the length of the current phase.

    The sequences are a fixed random sample of the held-out ones, with the masks of epoch 0 under `examples.seed`: the
    same masks with which the examples stage measured `unigram_entropy`.
    """

    losses: PreTrainingLosses
    """Module being trained; it runs uncompiled here, since the shapes differ from those of training."""
    folder: Path
    plan: Plan
    machine: Machine
    """Device, precision and ranks; the batches are distributed over the ranks."""
    every_steps: int
    max_sequences: int
    """Largest number of sequences to validate on."""

    def __post_init__(self) -> None:
        together, draws = self.losses.objective.pairs_together, self.losses.objective.reads_draws
        self._examples = {
            length: MaskedExamples(self.folder, "validation", length, pairs_together=together, with_draws=draws)
            for length in self.plan.lengths
        }

    def probe(self, step: int) -> dict[str, float]:
        """Measure the losses and metrics."""
        examples = self._examples[self.plan.place(max(0, step - 1)).max_length]
        of_objective = sum_names(self.losses.objective)
        names: tuple[str, ...] = (*of_objective, "targets", "sequences", "tokens")
        sums = np.zeros(len(names))
        with evaluating(self.losses, self.machine) as run:
            for batch in self._batches(examples):
                on_device = {name: torch.from_numpy(values).to(self.machine.device) for name, values in batch.items()}
                num_examples = len(batch["input_ids"]) // (1 if examples.pairs_together is None else 2)
                num_targets, num_tokens = (batch["masked_labels"] != IGNORED_LABEL).sum(), batch["attention_mask"].sum()
                counts = (int(num_targets), num_examples, int(num_tokens))
                found = run(on_device)
                sums += [*torch.stack([found[name] for name in of_objective]).tolist(), *counts]
        total = dict(zip(names, sum_over_ranks(sums.tolist(), self.machine.device), strict=True))
        return {f"val/{name}": mean for name, mean in means(self.losses.objective, total).items()}

    def _batches(self, examples: MaskedExamples) -> Iterator[dict[str, np.ndarray]]:
        count, together = min(self.max_sequences, len(examples)), examples.pairs_together or 1
        count -= count % together if count > together else 0  # a smaller group would be easier
        indices = shuffled(np.arange(count), len(examples), seed=examples.seed, epoch=0)
        size = max(1, _BATCH_TOKENS // examples.store.max_length // together) * together
        ranks = self.machine.ranks
        for start in range(size * ranks.rank, count, size * ranks.world_size):
            yield examples.batch(indices[start : start + size], epoch=0)


@dataclass
class BestStep(Probe):
    """Runs the validation probe and records the step after which the held-out loss was lowest.

    Losses at different sequence lengths are not comparable: when a phase changes the length, the search starts over.
    The measurement before the first step does not count; nothing has been trained at that point.
    """

    validation: Probe
    """Probe that measures the loss, with the same result on every rank."""
    plan: Plan
    judged_by: str
    step: int | None = None
    loss: float = math.inf
    _max_length: int = 0

    def __post_init__(self) -> None:
        self.every_steps = self.validation.every_steps
        self._key = f"val/{self.judged_by}"

    def probe(self, step: int) -> Mapping[str, float]:
        """Validate and record the step if its loss is the lowest so far."""
        metrics = self.validation.probe(step)
        max_length = self.plan.place(max(0, step - 1)).max_length
        lowest = self.loss if max_length == self._max_length else math.inf
        if step > 0 and metrics[self._key] < lowest:
            self.step, self.loss, self._max_length = step, metrics[self._key], max_length
        return metrics

    def as_mapping(self) -> dict[str, Any] | None:
        """Return the best step as plain data for the checkpoint; None if there is none yet."""
        if self.step is None:
            return None
        return {"step": self.step, self._key: self.loss, "max_length": self._max_length}

    def restore(self, found: Mapping[str, Any] | None) -> None:
        """Restore the best step from the `as_mapping` of a checkpoint; None resets it."""
        found = found or {"step": None, self._key: math.inf, "max_length": 0}
        self.step, self.loss, self._max_length = found["step"], found[self._key], found["max_length"]
