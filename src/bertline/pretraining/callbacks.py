"""Callbacks of pretraining: what happens between two steps, and the attention kernel of the next step."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytorch_lightning as pl
import torch

from bertline.modeling.attention_choice import AttentionChoice
from bertline.modeling.bert import set_attention
from bertline.pretraining.data import StepBatch
from bertline.pretraining.divergence import DivergenceGuard
from bertline.pretraining.interval import LOG_EVERY_STEPS, training_metrics
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.state import TrainingState
from bertline.pretraining.time_left import TimeLeft, flops_of
from bertline.training.devices import sum_over_ranks
from bertline.training.interruption import StopAgreement, StopRequest
from bertline.training.matmul_rate import peak_rate
from bertline.training.probe import DueProbes
from bertline.training.progress import TrainingProgress


@dataclass(kw_only=True, eq=False)
class BetweenSteps(pl.Callback):
    """Does what happens between two steps, in this order: metrics, probes, checkpoint, stop.

    A row of metrics is written every `LOG_EVERY_STEPS` steps and after the last one. If the health guard rejects it,
    training ends without the row. These metrics cover the steps since the previous row, also across a restart:
    `perf/tokens_per_s` (real tokens per second of training), `perf/mfu` (FLOP/s of the model for real tokens, as a
    fraction of the peak of all devices, see `training.matmul_rate`), `perf/data_wait_fraction` (fraction of training
    time) and `perf/paused_fraction` (fraction of wall time spent on probes, validation and saving). In addition, each
    row has `perf/memory_bytes` (peak of this process so far) and `perf/time_left_s` (see `TimeLeft`).

    A checkpoint is saved every `pretrain.checkpoint_every_steps` steps, `runtime.checkpoint_every_s` seconds after the
    last one, after the best and the last step, and before a requested stop.
    """

    state: TrainingState
    guard: DivergenceGuard
    """Decides whether a row may be written and whether the current state may be saved."""
    progress: TrainingProgress
    time_left: TimeLeft
    request: StopRequest
    """Whether a stop was requested."""
    now: Callable[[], float] = time.monotonic
    """Function that returns the time in seconds, for cadences in seconds."""
    stopped: bool = False
    """Whether training was stopped on request, and saved."""
    _saved_at: float = 0.0
    _learning_rate: float = 0.0
    _matmul_rate: float | None = None  # FLOP/s of all ranks together; first rank only
    _listening: ExitStack = field(default_factory=ExitStack)

    def setup(self, trainer: pl.Trainer, module: PretrainingModule, stage: str) -> None:
        """Prepare the agreements of all ranks on when to stop, to save and to probe."""
        runtime = self.state.job.runtime
        every_s, self._saved_at = runtime.checkpoint_every_s, self.now()
        self._agreement = StopAgreement(
            self.request,
            ranks=module.machine.ranks,
            device=module.machine.device,
            most_steps=LOG_EVERY_STEPS,
            now=lambda: self.state.clock.trained_s,
            asks_to_save=lambda: every_s is not None and self.now() - self._saved_at >= every_s,
        )
        self._due = DueProbes(
            self.state.probes, self.state.plan.num_steps, runtime.validate_every_s, module.machine, self.now
        )

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Find the peak for `perf/mfu`, start timing the first row, run the probes of a new run, listen to signals."""
        machine = module.machine
        if machine.ranks.is_first:
            with self.state.clock.paused():
                rate = peak_rate(machine.device, machine.precision)
            self._matmul_rate = machine.ranks.world_size * rate
        self.state.totals.row.resume()
        if module.finished_steps == 0:
            self._run_probes(module)
        self._listening.enter_context(self.request.listening())  # Lightning has installed its own handlers just before

    def on_train_end(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Restore the previous signal handlers."""
        self._listening.close()

    def on_exception(self, trainer: pl.Trainer, module: PretrainingModule, exception: BaseException) -> None:
        """Restore the previous signal handlers."""
        self._listening.close()

    def on_train_batch_start(self, trainer: pl.Trainer, module: PretrainingModule, batch: Any, batch_idx: int) -> None:
        """Record the learning rate of this step."""
        if batch_idx == 0:
            self.state.totals.begin_steps()
        self._learning_rate = module.learning_rate

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write the row of metrics, run the probes, save a checkpoint and stop training: each if it is due."""
        self.state.writer.check()
        if not self._record(module, batch):
            trainer.should_stop = True
            return
        self._run_probes(module)
        job, step, num_steps = self.state.job, module.finished_steps, self.state.plan.num_steps
        self.stopped = step < num_steps and self._agreement.reached(step)
        is_due = step % job.pretrain.checkpoint_every_steps == 0 or step in (self.state.best.step, num_steps)
        if self.stopped or is_due or self._agreement.is_save_due:
            self._saved_at = self.now()
            with self.state.clock.paused():
                if self.guard.accepts_state(module):
                    self.state.save(wait=self.stopped or step == num_steps)
                else:
                    self.stopped, trainer.should_stop = False, True
        if self.stopped:
            # No rank exits before the first rank has saved: torchrun and srun may kill the others once one has exited.
            sum_over_ranks([1], module.machine.device)
            trainer.should_stop = True

    def _record(self, module: PretrainingModule, batch: StepBatch) -> bool:
        """Count the step, write a row of metrics if one is due, and show progress. False: the row was rejected."""
        step = module.finished_steps
        module.interval.add_pairs(batch["micro_batches"])
        is_due = step % LOG_EVERY_STEPS == 0 or step == self.state.plan.num_steps
        total = module.interval.total() if is_due else None  # waits for the device, so that the clock is accurate
        self.time_left.take(step, self.state.clock.trained_s)
        left_s = self.time_left.after(step, paused_s=self.state.totals.paused_s)
        is_accepted = total is None or self._write_row(module, step, total, left_s)
        self.progress.show(step, left_s=left_s)
        return is_accepted

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
        self.state.totals.tokens += total["tokens"]
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

    def _run_probes(self, module: PretrainingModule) -> None:
        """Run the probes that are due and log their metrics."""
        step = module.finished_steps
        due = self._due.after(step)
        if due:
            with self.state.clock.paused():
                metrics = {key: value for probe in due for key, value in probe.probe(step).items()}
            if metrics and module.machine.ranks.is_first:
                self.state.log.log(step, metrics)


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory so far in bytes: allocated on the device with CUDA, else resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@dataclass(eq=False)
class AttentionByLength(pl.Callback):
    """Sets the attention kernel before a step whose sequence length differs from the previous one.

    Code between steps (validation, mask predictions, probes) runs with the kernel of the previous step: every kernel
    gives correct results at any width. A compiled graph is specific to one kernel and one width, and is reused when
    both recur.
    """

    choices: Mapping[int, AttentionChoice]
    """Attention kernel for each row length."""

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: PretrainingModule, batch: StepBatch, batch_idx: int
    ) -> None:
        """Set the kernel for the width of this step's rows."""
        kind = self.choices[batch["micro_batches"][0]["input_ids"].shape[1]].kind
        if module.model.attention != kind:
            set_attention(module.model, kind)
