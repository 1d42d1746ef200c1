"""What happens between two steps, in this order: metrics, probes, checkpoint, stop."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pytorch_lightning as pl
import torch

from bertline.foundation.errors import MachineError
from bertline.foundation.metrics_log import MetricsLog
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.flops import flops_per_token
from bertline.pretraining.best import BestStep
from bertline.pretraining.interval import LOG_EVERY_STEPS, training_metrics
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.watch import HealthWatch
from bertline.training.clock import TrainingClock
from bertline.training.distributed import sum_over_ranks
from bertline.training.interruption import StopRequest
from bertline.training.matmul_rate import matmul_rate_of_process
from bertline.training.probe import Probe, is_due
from bertline.training.progress import TrainingProgress


class Totals:
    """Sums over the whole run, over all its starts: real tokens, seconds of training, seconds of waiting for data."""

    def __init__(self, clock: TrainingClock, before: dict[str, float] | None = None) -> None:
        self._clock = clock
        self._before = before or {"tokens": 0.0, "train_time_s": 0.0, "data_wait_s": 0.0}
        self.tokens = self._before["tokens"]

    def as_mapping(self) -> dict[str, float]:
        """For the checkpoint."""
        return {
            "tokens": self.tokens,
            "train_time_s": self._before["train_time_s"] + self._clock.trained_s,
            "data_wait_s": self._before["data_wait_s"] + self._clock.waited_s,
        }


class RecordMetrics(pl.Callback):
    """Writes a row of metrics every `LOG_EVERY_STEPS` steps and after the last one, and shows progress.

    Ends the training, without the row, where the watch does not accept it.
    """

    def __init__(
        self,
        log: MetricsLog,
        clock: TrainingClock,
        totals: Totals,
        progress: TrainingProgress,
        watch: HealthWatch,
        *,
        num_steps: int,
    ) -> None:
        self._log = log
        self._watch = watch
        self._clock = clock
        self._totals = totals
        self._progress = progress
        self._num_steps = num_steps
        self._trained_s = self._waited_s = 0.0
        self._learning_rate = 0.0
        self._matmul_rate: float | None = None  # of all ranks, in operations a second; the first one knows it

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Measure what utilisation is held against; intervals are timed from here."""
        machine = module.machine
        if machine.ranks.is_first:
            with self._clock.paused():
                rate = matmul_rate_of_process(machine.device, machine.precision)
            self._matmul_rate = machine.ranks.world_size * rate
        self._trained_s, self._waited_s = self._clock.trained_s, self._clock.waited_s

    def on_train_batch_start(self, trainer: pl.Trainer, module: PretrainingModule, batch: Any, batch_idx: int) -> None:
        """Remember the rate that the step is taken with."""
        self._learning_rate = module.learning_rate

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write a row where one is due."""
        step = module.finished_steps
        if step % LOG_EVERY_STEPS == 0 or step == self._num_steps:
            self._write_row(trainer, module, step)
        self._progress.show(step)

    def _write_row(self, trainer: pl.Trainer, module: PretrainingModule, step: int) -> None:
        total = module.interval.total()
        trained_s, waited_s = self._clock.trained_s, self._clock.waited_s
        duration_s = trained_s - self._trained_s
        metrics = {
            **training_metrics(total, nsp_weight=module.objective_config.nsp_weight),
            "optim/lr": self._learning_rate,
            "perf/tokens_per_s": total["tokens"] / duration_s,
            **self._utilisation(module.model, total, duration_s),
            "perf/data_wait_fraction": (waited_s - self._waited_s) / duration_s,
            "perf/memory_bytes": peak_memory_bytes(module.machine.device),
        }
        if not self._watch.accepts_row(step, metrics, num_steps=int(total["steps"])):
            trainer.should_stop = True
            return
        self._totals.tokens += total["tokens"]
        self._trained_s, self._waited_s = trained_s, waited_s
        module.interval.clear()
        self._progress.note(metrics)
        if module.machine.ranks.is_first:
            self._log.log(step, metrics)

    def _utilisation(self, model: BertForPreTraining, total: dict[str, float], duration_s: float) -> dict[str, float]:
        """The model's operations a second over those of a large matrix product; nothing where it is not known."""
        if self._matmul_rate is None or not total["sequences"]:
            return {}
        # Targets and sequences are summed without the steps that were skipped, tokens with them.
        of_all_steps = total["steps"] / (total["steps"] - total["skipped_steps"])
        flops = flops_per_token(
            model.bert.config,
            vocab_size=model.bert.vocab_size,
            seq_len=total["tokens"] / (of_all_steps * total["sequences"]),
            target_fraction=of_all_steps * total["targets"] / total["tokens"],
        )
        return {"perf/mfu": flops * total["tokens"] / duration_s / self._matmul_rate}


class RunProbes(pl.Callback):
    """Runs the probes that are due and writes what they measured."""

    def __init__(self, probes: Sequence[Probe], log: MetricsLog, clock: TrainingClock, *, num_steps: int) -> None:
        self._probes = probes
        self._log = log
        self._clock = clock
        self._num_steps = num_steps

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Look at the model before its first step."""
        if module.finished_steps == 0:
            self._run(module)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look where it is time to; a course that is given up is not worth it."""
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
    """Saves a checkpoint every so many steps, after the best and the last one, and before a stop that was asked for.

    Args:
        save: Saves the module as it is; called on all ranks.
        request: Says whether to stop.
        clock: Paused while saving.
        best: Knows whether the step was the best so far; the probes have run.
        watch: Says whether what is about to be saved may be.
        every_steps: `pretrain.checkpoint_every_steps`.
        num_steps: Of the whole run.
    """

    def __init__(
        self,
        save: Callable[[PretrainingModule], None],
        request: StopRequest,
        clock: TrainingClock,
        best: BestStep,
        watch: HealthWatch,
        *,
        every_steps: int,
        num_steps: int,
    ) -> None:
        self._save = save
        self._request = request
        self._clock = clock
        self._best = best
        self._watch = watch
        self._every_steps = every_steps
        self._num_steps = num_steps
        self._listening = ExitStack()
        self.stopped = False

    def setup(self, trainer: pl.Trainer, module: PretrainingModule, stage: str) -> None:
        """Hold the ranks to one checkpoint, before the first of them computes anything.

        Raises:
            MachineError: They go on from different steps, because they do not see the same files.
        """
        step, ranks = module.finished_steps, module.machine.ranks
        # All numbers are equal where both their sum and that of their squares are as if they were.
        if sum_over_ranks([step, step**2], module.machine.device) != [
            ranks.world_size * step,
            ranks.world_size * step**2,
        ]:
            raise MachineError(
                f"the {ranks.world_size} processes go on from different steps, this one (rank {ranks.rank}) from "
                f"{step:,}. All need the same run folder: put runtime.runs_folder on a file system that every machine "
                "shares."
            )

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Take signals from here on: Lightning has set its own handlers just before."""
        self._listening.enter_context(self._request.listening())

    def on_train_end(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Give the signals back."""
        self._listening.close()

    def on_exception(self, trainer: pl.Trainer, module: PretrainingModule, exception: BaseException) -> None:
        """Give the signals back."""
        self._listening.close()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save, stop, or neither."""
        if trainer.should_stop:
            return
        step = module.finished_steps
        self.stopped = step < self._num_steps and self._agreed_to_stop(module, step)
        if self.stopped or step % self._every_steps == 0 or step in (self._best.step, self._num_steps):
            with self._clock.paused():
                if self._watch.accepts_state(module):
                    self._save(module)
                else:
                    self.stopped, trainer.should_stop = False, True
        if self.stopped:
            trainer.should_stop = True

    def _agreed_to_stop(self, module: PretrainingModule, step: int) -> bool:
        """Signals reach the ranks at different moments; they must stop after the same step, or wait for ever."""
        if module.machine.ranks.world_size == 1:
            return self._request.made
        return step % LOG_EVERY_STEPS == 0 and sum_over_ranks([self._request.made], module.machine.device)[0] > 0


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory so far: of the GPU where there is one, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
