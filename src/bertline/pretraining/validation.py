"""Validation on held-out examples with fixed masks, so that the figures of any two runs are comparable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from bertline.foundation.labels import IGNORED_LABEL
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.objectives.base import means, sum_names
from bertline.pretraining.order import shuffled
from bertline.pretraining.plan import Plan
from bertline.training.devices import Machine
from bertline.training.distributed import sum_over_ranks
from bertline.training.evaluating import evaluating

_BATCH_TOKENS = 8192


class ValidationProbe:
    """Measures the losses and metrics of the objective, `val/NAME`, at the length of the current phase.

    The sequences are a fixed random sample of the held-out ones, with the masks of epoch 0 under `examples.seed`: the
    same masks with which the examples stage measured `unigram_entropy`.

    Args:
        losses: Module being trained; it runs uncompiled here, since the shapes differ from those of training.
        folder: Folder of the examples artifact.
        plan: Gives the sequence length of a step.
        machine: Device, precision and ranks; the batches are distributed over the ranks.
        every_steps: See `training.probe`.
        max_sequences: Largest number of sequences to validate on.
    """

    def __init__(
        self,
        losses: PreTrainingLosses,
        folder: Path,
        plan: Plan,
        *,
        machine: Machine,
        every_steps: int,
        max_sequences: int,
    ) -> None:
        self.every_steps = every_steps
        self._losses = losses
        self._plan = plan
        self._machine = machine
        self._max_sequences = max_sequences
        self._examples = {length: MaskedExamples(folder, "validation", length) for length in plan.lengths}

    def probe(self, step: int) -> dict[str, float]:
        """Measure the losses and metrics."""
        examples = self._examples[self._plan.place(max(0, step - 1)).max_length]
        names: tuple[str, ...] = (*sum_names(self._losses.objective), "targets", "sequences")
        sums = np.zeros(len(names))
        with evaluating(self._losses, self._machine) as run:
            for batch in self._batches(examples):
                on_device = {name: torch.from_numpy(values).to(self._machine.device) for name, values in batch.items()}
                counts = (int((batch["masked_labels"] != IGNORED_LABEL).sum()), len(batch["input_ids"]))
                sums += [*torch.stack(list(run(on_device).values())).tolist(), *counts]
        total = dict(zip(names, sum_over_ranks(sums.tolist(), self._machine.device), strict=True))
        return {f"val/{name}": mean for name, mean in means(self._losses.objective, total).items()}

    def keep_up_to(self, step: int) -> None:
        """Do nothing: this probe keeps no records."""

    def _batches(self, examples: MaskedExamples) -> Iterator[dict[str, np.ndarray]]:
        count = min(self._max_sequences, len(examples))
        indices = shuffled(np.arange(count), len(examples), seed=examples.seed, epoch=0)
        size = max(1, _BATCH_TOKENS // examples.store.max_length)
        ranks = self._machine.ranks
        for start in range(size * ranks.rank, count, size * ranks.world_size):
            yield examples.batch(indices[start : start + size], epoch=0)
