"""Callbacks that run between two steps, in this order: metrics, probes, checkpoint, stop."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytorch_lightning as pl
import torch

from bertline.foundation.errors import MachineError
from bertline.foundation.metrics_log import MetricsLog
from bertline.modeling.attention_choice import AttentionChoice
from bertline.modeling.bert import MaskedLanguageModel, set_attention
from bertline.modeling.flops import flops_per_token
from bertline.pretraining.data import StepBatch
from bertline.pretraining.divergence import DivergenceGuard
from bertline.pretraining.interval import LOG_EVERY_STEPS, training_metrics
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.time_left import TimeLeft
from bertline.pretraining.validation import BestStep
from bertline.training.clock import Lap, Seconds, TrainingClock
from bertline.training.distributed import sum_over_ranks
from bertline.training.interruption import StopAgreement, StopRequest
from bertline.training.peak_rate import peak_rate
from bertline.training.probe import Probe, is_due
from bertline.training.progress import TrainingProgress


class Totals:
    """Sums over the whole run, across restarts: real tokens, and seconds of training, data waiting and pauses.

    Args:
        clock: Clock of this start.
        before: `as_mapping` from the checkpoint; checkpoints from before pauses were counted lack `paused_s`.
        row_before: `Lap.seconds` of the metrics row that the checkpoint interrupted.
    """

    def __init__(
        self, clock: TrainingClock, before: dict[str, float] | None = None, row_before: Seconds | None = None
    ) -> None:
        self._clock = clock
        self._before = {"tokens": 0.0, "train_time_s": 0.0, "data_wait_s": 0.0, "paused_s": 0.0, **(before or {})}
        self._paused_before_steps_s = 0.0
        self.tokens = self._before["tokens"]
        self.row = Lap(clock, row_before)
        """Seconds since the last row of metrics."""

    def begin_steps(self) -> None:
        """Exclude the pauses so far from `paused_s`: those before the first step happen once, later ones recur."""
        self._paused_before_steps_s = self._clock.seconds.paused_s

    @property
    def paused_s(self) -> float:
        """Seconds of pauses between steps, over the whole run."""
        return self._before["paused_s"] + self._clock.seconds.paused_s - self._paused_before_steps_s

    def as_mapping(self) -> dict[str, float]:
        """Return the totals as plain data for the checkpoint."""
        return {
            "tokens": self.tokens,
            "train_time_s": self._before["train_time_s"] + self._clock.trained_s,
            "data_wait_s": self._before["data_wait_s"] + self._clock.waited_s,
            "paused_s": self.paused_s,
        }


class RecordMetrics(pl.Callback):
    """Writes a row of metrics every `LOG_EVERY_STEPS` steps and after the last one, and shows progress.

    Ends training without writing the row if the health guard rejects it.

    These metrics cover the steps since the previous row, also across a restart: `perf/tokens_per_s` (real tokens per
    second of training), `perf/mfu` (FLOP/s of the model for real tokens, as a fraction of the peak of all
    devices, see `training.peak_rate`), `perf/data_wait_fraction` (fraction of training time) and `perf/paused_fraction`
    (fraction of wall time spent on probes, validation and saving). In addition, each row has `perf/memory_bytes` (peak
    of this process so far) and `perf/time_left_s` (see `TimeLeft`).
    """

    def __init__(
        self,
        log: MetricsLog,
        clock: TrainingClock,
        totals: Totals,
        progress: TrainingProgress,
        time_left: TimeLeft,
        guard: DivergenceGuard,
        *,
        num_steps: int,
    ) -> None:
        self._log = log
        self._time_left = time_left
        self._guard = guard
        self._clock = clock
        self._totals = totals
        self._progress = progress
        self._num_steps = num_steps
        self._learning_rate = 0.0
        self._matmul_rate: float | None = None  # FLOP/s of all ranks together; first rank only

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Find the peak for `perf/mfu`, then start timing the first row."""
        machine = module.machine
        if machine.ranks.is_first:
            with self._clock.paused():
                rate = peak_rate(machine.device, machine.precision)
            self._matmul_rate = machine.ranks.world_size * rate
        self._totals.row.resume()

    def on_train_batch_start(self, trainer: pl.Trainer, module: PretrainingModule, batch: Any, batch_idx: int) -> None:
        """Record the learning rate of this step."""
        if batch_idx == 0:
            self._totals.begin_steps()
        self._learning_rate = module.learning_rate

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write a row of metrics if one is due, and update the progress display."""
        step = module.finished_steps
        module.interval.add_pairs(batch["micro_batches"])
        is_due = step % LOG_EVERY_STEPS == 0 or step == self._num_steps
        total = module.interval.total() if is_due else None  # waits for the device, so that the clock is accurate
        self._time_left.take(step, self._clock.trained_s)
        left_s = self._time_left.after(step, paused_s=self._totals.paused_s)
        if total is not None:
            self._write_row(trainer, module, step, total, left_s)
        self._progress.show(step, left_s=left_s)

    def _write_row(
        self, trainer: pl.Trainer, module: PretrainingModule, step: int, total: dict[str, float], left_s: float | None
    ) -> None:
        took = self._totals.row.end()
        metrics = {
            **training_metrics(total, module.objective),
            "optim/lr": self._learning_rate,
            "perf/tokens_per_s": total["timed_tokens"] / took.trained_s,
            **self._utilisation(module.model, total, took.trained_s),
            "perf/data_wait_fraction": took.waited_s / took.trained_s,
            "perf/paused_fraction": took.paused_s / (took.trained_s + took.paused_s),
            "perf/memory_bytes": peak_memory_bytes(module.machine.device),
        }
        if left_s is not None:
            metrics["perf/time_left_s"] = left_s
        if not self._guard.accepts_row(step, metrics, num_steps=int(total["steps"])):
            trainer.should_stop = True
            return
        self._totals.tokens += total["tokens"]
        module.interval.clear()
        self._progress.note(metrics)
        if module.machine.ranks.is_first:
            self._log.log(step, metrics)

    def _utilisation(self, model: MaskedLanguageModel, total: dict[str, float], duration_s: float) -> dict[str, float]:
        """Return `perf/mfu`: FLOP/s of the model over those of a large matrix product; empty if these are unknown."""
        if self._matmul_rate is None:
            return {}
        tokens = total["timed_tokens"]
        # FLOPs are linear in each of the three sums, except for the small part that the last layer computes at the
        # first position of each sequence, so the formula also holds for intervals with several sequence lengths.
        flops = flops_per_token(
            model.bert.config,
            vocab_size=model.bert.vocab_size,
            seq_len=total["timed_pairs"] / tokens,
            target_fraction=total["timed_targets"] / tokens,
            with_pooler=model.bert.pooler is not None,
        )
        return {"perf/mfu": flops * tokens / duration_s / self._matmul_rate}


class RunProbes(pl.Callback):
    """Runs the probes that are due and logs their metrics."""

    def __init__(self, probes: Sequence[Probe], log: MetricsLog, clock: TrainingClock, *, num_steps: int) -> None:
        self._probes = probes
        self._log = log
        self._clock = clock
        self._num_steps = num_steps

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Run the probes before the first step of a new run."""
        if module.finished_steps == 0:
            self._run(module)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Run the probes that are due, unless the row of metrics was rejected and training is ending."""
        if not trainer.should_stop:
            self._run(module)

    def _run(self, module: PretrainingModule) -> None:
        step = module.finished_steps
        due = [probe for probe in self._probes if is_due(probe, step, self._num_steps)]
        if due:
            with self._clock.paused():
                metrics = {key: value for probe in due for key, value in probe.probe(step).items()}
            if metrics and module.machine.ranks.is_first:
                self._log.log(step, metrics)


class SaveAndStop(pl.Callback):
    """Saves a checkpoint every `every_steps` steps, after the best and the last step, and before a requested stop.

    Args:
        save: Saves the module in its current state; called on all ranks.
        request: Whether a stop was requested.
        clock: Paused while saving.
        best: Best step so far; the probes have already run.
        guard: Decides whether the current state may be saved.
        every_steps: `pretrain.checkpoint_every_steps`.
        num_steps: Number of steps of the whole run.
    """

    def __init__(
        self,
        save: Callable[[PretrainingModule], None],
        request: StopRequest,
        clock: TrainingClock,
        best: BestStep,
        guard: DivergenceGuard,
        *,
        every_steps: int,
        num_steps: int,
    ) -> None:
        self._save = save
        self._request = request
        self._clock = clock
        self._best = best
        self._guard = guard
        self._every_steps = every_steps
        self._num_steps = num_steps
        self._listening = ExitStack()
        self.stopped = False

    def setup(self, trainer: pl.Trainer, module: PretrainingModule, stage: str) -> None:
        """Check that all ranks resume from the same step, before any of them computes.

        Raises:
            MachineError: The ranks resume from different steps, because they do not see the same files.
        """
        step, ranks = module.finished_steps, module.machine.ranks
        self._agreement = StopAgreement(
            self._request,
            ranks=ranks,
            device=module.machine.device,
            most_steps=LOG_EVERY_STEPS,
            now=lambda: self._clock.trained_s,
        )
        # If both sums are as expected, sum((x - step)**2) over the ranks' steps x is 0, so all of them are equal.
        if sum_over_ranks([step, step**2], module.machine.device) != [
            ranks.world_size * step,
            ranks.world_size * step**2,
        ]:
            raise MachineError(
                f"the {ranks.world_size} processes resume from different steps, this one (rank {ranks.rank}) from "
                f"{step:,}. All need the same run folder: put runtime.runs_folder on a file system that every machine "
                "shares."
            )

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Install the signal handlers; Lightning has installed its own just before."""
        self._listening.enter_context(self._request.listening())

    def on_train_end(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Restore the previous signal handlers."""
        self._listening.close()

    def on_exception(self, trainer: pl.Trainer, module: PretrainingModule, exception: BaseException) -> None:
        """Restore the previous signal handlers."""
        self._listening.close()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save a checkpoint and stop training, if due."""
        if trainer.should_stop:
            return
        step = module.finished_steps
        self.stopped = step < self._num_steps and self._agreement.reached(step)
        if self.stopped or step % self._every_steps == 0 or step in (self._best.step, self._num_steps):
            with self._clock.paused():
                if self._guard.accepts_state(module):
                    self._save(module)
                else:
                    self.stopped, trainer.should_stop = False, True
        if self.stopped:
            # No rank exits before the first rank has saved: torchrun and srun may kill the others once one has exited.
            sum_over_ranks([1], module.machine.device)
            trainer.should_stop = True


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory so far in bytes: allocated on the device with CUDA, else resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class AttentionByLength(pl.Callback):
    """Sets the attention kernel before a step whose sequence length differs from the previous one.

    Code between steps (validation, mask predictions, probes) runs with the kernel of the previous step: every kernel
    gives correct results at any width. A compiled graph is specific to one kernel and one width, and is reused when
    both recur.

    Args:
        choices: Attention kernel for each row length.
    """

    def __init__(self, choices: Mapping[int, AttentionChoice]) -> None:
        self._choices = choices

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: PretrainingModule, batch: StepBatch, batch_idx: int
    ) -> None:
        """Set the kernel for the width of this step's rows."""
        kind = self._choices[batch["micro_batches"][0]["input_ids"].shape[1]].kind
        if module.model.attention != kind:
            set_attention(module.model, kind)
