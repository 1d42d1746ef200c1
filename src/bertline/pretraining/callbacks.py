"""What happens between two steps, in this order: metrics, probes, checkpoint, stop."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pytorch_lightning as pl
import torch

from bertline.foundation.metrics_log import MetricsLog
from bertline.pretraining.interval import training_metrics
from bertline.pretraining.module import PretrainingModule
from bertline.training.clock import TrainingClock
from bertline.training.distributed import sum_over_ranks
from bertline.training.interruption import StopRequest
from bertline.training.probe import Probe, is_due
from bertline.training.progress import TrainingProgress

LOG_EVERY_STEPS = 20


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
    """Writes a row of metrics every `LOG_EVERY_STEPS` steps and after the last one, and shows progress."""

    def __init__(
        self, log: MetricsLog, clock: TrainingClock, totals: Totals, progress: TrainingProgress, *, num_steps: int
    ) -> None:
        self._log = log
        self._clock = clock
        self._totals = totals
        self._progress = progress
        self._num_steps = num_steps
        self._trained_s = self._waited_s = 0.0
        self._learning_rate = 0.0

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Intervals are timed from here."""
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
            self._write_row(module, step)
        self._progress.show(step)

    def _write_row(self, module: PretrainingModule, step: int) -> None:
        total = module.interval.total()
        trained_s, waited_s = self._clock.trained_s, self._clock.waited_s
        duration_s = trained_s - self._trained_s
        metrics = {
            **training_metrics(total, nsp_weight=module.objective_config.nsp_weight),
            "optim/lr": self._learning_rate,
            "perf/tokens_per_s": total["tokens"] / duration_s,
            "perf/data_wait_fraction": (waited_s - self._waited_s) / duration_s,
            "perf/memory_bytes": peak_memory_bytes(module.machine.device),
        }
        self._totals.tokens += total["tokens"]
        self._trained_s, self._waited_s = trained_s, waited_s
        module.interval.clear()
        self._progress.note(metrics)
        if module.machine.ranks.is_first:
            self._log.log(step, metrics)


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
        """Look where it is time to."""
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
    """Saves a checkpoint every so many steps, after the last one, and before stopping where that was asked for.

    Args:
        save: Saves the module as it is; called on all ranks.
        request: Says whether to stop.
        clock: Paused while saving.
        every_steps: `pretrain.checkpoint_every_steps`.
        num_steps: Of the whole run.
    """

    def __init__(
        self,
        save: Callable[[PretrainingModule], None],
        request: StopRequest,
        clock: TrainingClock,
        *,
        every_steps: int,
        num_steps: int,
    ) -> None:
        self._save = save
        self._request = request
        self._clock = clock
        self._every_steps = every_steps
        self._num_steps = num_steps
        self._listening = ExitStack()
        self.stopped = False

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
        step = module.finished_steps
        self.stopped = step < self._num_steps and self._agreed_to_stop(module, step)
        if self.stopped or step % self._every_steps == 0 or step == self._num_steps:
            with self._clock.paused():
                self._save(module)
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
