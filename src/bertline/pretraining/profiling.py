"""A profile of a few steps on demand (`runtime.profile=true`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from bertline.foundation.progress import say, warn
from bertline.pretraining.module import PretrainingModule
from bertline.training.clock import TrainingClock
from bertline.training.profiling import TABLE_NAME, TRACE_NAME, StepProfiler, name_compiled_kernels

_FIRST_STEPS = 10
"""Of this start, not profiled: they compile, and fill caches."""
_PROFILED_STEPS = 5


class ProfileSteps(pl.Callback):
    """Profiles some of the steps of this start, on the first rank, and says where the result is.

    A run with fewer steps to go is profiled earlier; its first step, which compiles, never is. What is trained is the
    same with and without.

    Args:
        folder: Gets the trace and the table.
        clock: Paused while they are written.
        num_steps: Of the whole run.
    """

    def __init__(self, folder: Path, clock: TrainingClock, *, num_steps: int) -> None:
        self._folder = folder
        self._clock = clock
        self._num_steps = num_steps
        self._profiler: StepProfiler | None = None
        self._first_step = 0

    def setup(self, trainer: pl.Trainer, module: PretrainingModule, stage: str) -> None:
        """Nothing is compiled yet."""
        name_compiled_kernels()

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Choose the steps."""
        if not module.machine.ranks.is_first:
            return
        left = self._num_steps - module.finished_steps
        num_steps = min(_PROFILED_STEPS, left - 2)  # one that compiles, one that warms the profiler up
        if num_steps < 1:
            warn(f"runtime.profile: {left} steps are left, too few for a profile, which needs 3")
            return
        self._first_step = module.finished_steps + min(_FIRST_STEPS, left - num_steps - 1)
        self._profiler = StepProfiler(self._folder, module.machine.device, num_steps=num_steps)

    def on_train_batch_start(self, trainer: pl.Trainer, module: PretrainingModule, batch: Any, batch_idx: int) -> None:
        """Start where it is time to."""
        if self._profiler is not None and module.finished_steps == self._first_step:
            with self._clock.paused():
                self._profiler.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step; after the last one, write."""
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
        """Leave nothing running where training was stopped in between."""
        self._give_up()

    def on_exception(self, trainer: pl.Trainer, module: PretrainingModule, exception: BaseException) -> None:
        """The same."""
        self._give_up()

    def _give_up(self) -> None:
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None
