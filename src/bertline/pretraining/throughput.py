"""Throughput: the rows of metrics with losses, speed and utilisation, and the time that is left."""

from __future__ import annotations

import resource
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch

from bertline.encoders.loading import LanguageModel
from bertline.examples.masking import masking_policy, max_targets
from bertline.modeling.flops import flops_per_token
from bertline.pretraining.checkpoint import TrainingState
from bertline.pretraining.data import MaskedExamples, StepBatch
from bertline.pretraining.divergence import DivergenceGuard
from bertline.pretraining.interval import LOG_EVERY_STEPS, training_metrics
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import Plan
from bertline.pretraining.row_layout import RowLayout, fill_of
from bertline.training.matmul_rate import peak_rate
from bertline.training.progress import TrainingProgress

_WINDOW_STEPS = 200


@dataclass(kw_only=True, eq=False)
class Throughput(pl.Callback):
    """Counts each step, shows progress, and writes a row of metrics every `LOG_EVERY_STEPS` steps and after the last.

    If the guard rejects a row, training ends without it. These metrics cover the steps since the previous row, also
    across a restart: `perf/tokens_per_s` (real tokens per second of training), `perf/mfu` (FLOP/s of the model for real
    tokens, as a fraction of the peak of all devices, see `training.matmul_rate`), `perf/data_wait_fraction` (fraction
    of training time) and `perf/paused_fraction` (fraction of wall time spent on probes, validation and saving). In
    addition, each row has `perf/memory_bytes` (peak of this process so far) and `perf/time_left_s` (see `TimeLeft`).
    """

    state: TrainingState
    guard: DivergenceGuard
    progress: TrainingProgress
    time_left: TimeLeft
    _learning_rate: float = 0.0
    _matmul_rate: float | None = None  # FLOP/s of all ranks together; first rank only

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Find the peak for `perf/mfu`, and start timing the first row."""
        machine = module.machine
        if machine.ranks.is_first:
            with self.state.clock.paused():
                rate = peak_rate(machine.device, machine.precision)
            self._matmul_rate = machine.ranks.world_size * rate
        self.state.totals.row.resume()

    def on_train_batch_start(self, trainer: pl.Trainer, module: PretrainingModule, batch: Any, batch_idx: int) -> None:
        """Record the learning rate of this step."""
        if batch_idx == 0:
            self.state.totals.begin_steps()
        self._learning_rate = module.learning_rate

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: StepBatch, batch_idx: int
    ) -> None:
        """Count the step, write a row of metrics if one is due, and show progress."""
        step = module.finished_steps
        module.interval.add_pairs(batch["micro_batches"])
        is_due = step % LOG_EVERY_STEPS == 0 or step == self.state.plan.num_steps
        total = module.interval.total() if is_due else None  # waits for the device, so that the clock is accurate
        self.time_left.take(step, self.state.clock.trained_s)
        left_s = self.time_left.after(step, paused_s=self.state.totals.paused_s)
        if total is not None and not self._write_row(module, step, total, left_s):
            trainer.should_stop = True
        self.progress.show(step, left_s=left_s)

    def _write_row(self, module: PretrainingModule, step: int, total: dict[str, float], left_s: float | None) -> bool:
        took = self.state.totals.row.end()
        metrics = {
            **training_metrics(total, module.objective),
            "optim/lr": self._learning_rate,
            "perf/tokens_per_s": total["timed_tokens"] / took.trained_s,
            **self._utilisation(module, total, took.trained_s),
            "perf/data_wait_fraction": took.waited_s / took.trained_s,
            "perf/paused_fraction": took.paused_s / (took.trained_s + took.paused_s),
            "perf/memory_bytes": peak_memory_bytes(module.machine.device),
        }
        if left_s is not None:
            metrics["perf/time_left_s"] = left_s
        if not self.guard.accepts_row(step, metrics, num_steps=int(total["steps"])):
            return False
        self.state.totals.tokens += total["timed_tokens"]
        module.interval.clear()
        self.progress.note(metrics)
        if module.machine.ranks.is_first:
            self.state.log.log(step, metrics)
        return True

    def _utilisation(self, module: PretrainingModule, total: dict[str, float], duration_s: float) -> dict[str, float]:
        """Return `perf/mfu`: FLOP/s of the model over those of a large matrix product; empty if these are unknown."""
        if self._matmul_rate is None:
            return {}
        tokens = total["timed_tokens"]
        # FLOPs are linear in each of the three sums, except for the small part that the last layer computes at the
        # first position of each sequence, so the formula also holds for intervals with several sequence lengths.
        seq_len, target_fraction = total["timed_pairs"] / tokens, total["timed_targets"] / tokens
        flops = flops_of(module.model, seq_len=seq_len, target_fraction=target_fraction)
        return {"perf/mfu": flops * tokens / duration_s / self._matmul_rate}


@dataclass
class TimeLeft:
    """Estimates the seconds left over all phases: a step of a later phase may cost many times a step of this one.

    The rate is that of the last 200 steps, in work per second of training. Steps that may compile do not count: the
    first step of a start and of each length. Lengths that are not reached yet are assumed to run at the current rate;
    costs that do not depend on the batch, such as the optimizer update, are not modelled separately.
    """

    plan: Plan
    work: Mapping[int, float]
    """Work per sequence of each length, in any unit; see `work_of_sequences`."""

    def __post_init__(self) -> None:
        self._newest: deque[tuple[float, float]] = deque(maxlen=_WINDOW_STEPS)
        self._last: tuple[int, float] | None = None

    def take(self, step: int, trained_s: float) -> None:
        """Record a finished step (counted from 1) and the clock's seconds of training after it."""
        length = self.plan.place(step - 1).max_length
        if self._last is not None and self._last[0] == length:
            self._newest.append((self._work_of(step - 1, step), trained_s - self._last[1]))
        self._last = (length, trained_s)

    def after(self, step: int, *, paused_s: float) -> float | None:
        """Return the seconds from now to the end of the last step; None while the rate is unknown.

        Args:
            paused_s: Seconds of pauses between these steps; later pauses are assumed to be as frequent.
        """
        num_steps = self.plan.num_steps
        if step >= num_steps:
            return 0.0
        done, took_s = (sum(values) for values in zip(*self._newest, strict=True)) if self._newest else (0.0, 0.0)
        if not done:
            return None
        return self._work_of(step, num_steps) * took_s / done + paused_s / step * (num_steps - step)

    def _work_of(self, first_step: int, end_step: int) -> float:
        taken = self.plan.sequences(first_step, end_step)
        return sum(count * self.work[length] for length, count in taken.items())


def work_of_sequences(
    model: LanguageModel, examples: Mapping[int, MaskedExamples], layouts: Mapping[int, RowLayout]
) -> dict[int, float]:
    """Return the FLOPs per sequence of each length, forward and backward, including padding unless rows are packed."""
    work = {}
    for length, of_length in examples.items():
        store = of_length.store
        are_apart = of_length.pairs_together is not None
        rows = length * (2 if are_apart else 1)
        positions = rows * fill_of(store, are_apart=are_apart) if layouts[length].packed else float(rows)
        targets = max_targets(length, masking_policy(store.manifest).mask_prob, num_segments=store.num_segments)
        work[length] = positions * flops_of(model, seq_len=positions, target_fraction=targets / length)
    return work


def flops_of(model: LanguageModel, *, seq_len: float, target_fraction: float) -> float:
    """Return `flops_per_token` of a model; a detector has no targets, its generator has them."""
    generator: Any = getattr(model, "generator", None)
    flops = flops_per_token(
        model.bert.config,
        vocab_size=model.bert.vocab_size,
        seq_len=seq_len,
        target_fraction=target_fraction if generator is None else 0.0,
        with_pooler=model.bert.pooler is not None,
    )
    return flops if generator is None else flops + flops_of(generator, seq_len=seq_len, target_fraction=target_fraction)


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory so far in bytes: allocated on the device with CUDA, else resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
