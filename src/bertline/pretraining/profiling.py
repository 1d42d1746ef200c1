"""Profile of a few steps on request (`runtime.profile=true`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from bertline.foundation.progress import say, warn
from bertline.pretraining.module import PretrainingModule
from bertline.training.clock import TrainingClock
from bertline.training.profiling import TABLE_NAME, TRACE_NAME, StepProfiler, name_compiled_kernels

_FIRST_STEPS = 10
"""Number of steps of this start before the profile: they compile and fill caches."""
_PROFILED_STEPS = 5


class ProfileSteps(pl.Callback):
    """Profiles a few steps of this start on the first rank and logs the paths of the result.

    A run with fewer steps left is profiled earlier, but never in its first step, which compiles. Profiling does not
    change the trained weights.

    Args:
        folder: Folder for the trace and the table.
        clock: Paused while the profiler starts, advances or writes.
        num_steps: Number of steps of the whole run.
    """

    def __init__(self, folder: Path, clock: TrainingClock, *, num_steps: int) -> None:
        self._folder = folder
        self._clock = clock
        self._num_steps = num_steps
        self._profiler: StepProfiler | None = None
        self._first_step = 0

    def setup(self, trainer: pl.Trainer, module: PretrainingModule, stage: str) -> None:
        """Enable the names of compiled kernels, before anything is compiled."""
        name_compiled_kernels()

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Choose the steps to profile."""
        if not module.machine.ranks.is_first:
            return
        left = self._num_steps - module.finished_steps
        num_steps = min(_PROFILED_STEPS, left - 2)  # one step compiles, one warms up the profiler
        if num_steps < 1:
            warn(f"runtime.profile: {left} steps are left, too few for a profile, which needs 3")
            return
        self._first_step = module.finished_steps + min(_FIRST_STEPS, left - num_steps - 1)
        self._profiler = StepProfiler(self._folder, module.machine.device, num_steps=num_steps)

    def on_train_batch_start(self, trainer: pl.Trainer, module: PretrainingModule, batch: Any, batch_idx: int) -> None:
        """Start the profiler at the first chosen step."""
        if self._profiler is not None and module.finished_steps == self._first_step:
            with self._clock.paused():
                self._profiler.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance the profiler, which writes the profile after the last step."""
        if self._profiler is None:
            return
        with self._clock.paused():
            self._profiler.step()
        if self._profiler.is_written:
            say(
                f"profile: {self._folder / TABLE_NAME} has the costliest operations, {self._folder / TRACE_NAME} every "
                "one (open it at ui.perfetto.dev or chrome://tracing)"
            )
            self._profiler = None

    def on_train_end(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Stop the profiler if training ended before the profile was complete."""
        self._give_up()

    def on_exception(self, trainer: pl.Trainer, module: PretrainingModule, exception: BaseException) -> None:
        """Stop the profiler if training failed before the profile was complete."""
        self._give_up()

    def _give_up(self) -> None:
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None
