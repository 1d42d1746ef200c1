"""Profile of a few steps on request (`runtime.profile=true`): a trace, and a table of the ten costliest operations."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, schedule

from bertline.foundation.files import folder_written_atomically, write_atomically
from bertline.foundation.progress import say, warn
from bertline.pretraining.module import PretrainingModule
from bertline.training.clock import TrainingClock
from bertline.training.private_api import name_compiled_kernels

TRACE_NAME = "trace.json.gz"
TABLE_NAME = "top_operations.txt"
_NUM_OPERATIONS = 10
_WARMUP_STEPS = 1  # the profiler's own first step is slow
_NAME_WIDTH = 100


@dataclass
class StepProfiler:
    """Records `num_steps` steps, after one that warms up the profiler, and writes the profile."""

    folder: Path
    """Folder for `trace.json.gz` (Chrome's format) and `top_operations.txt`; replaced as a whole."""
    device: torch.device
    num_steps: int
    is_written: bool = False
    _profile: profile | None = None
    _recorded: int = 0
    _begun: float = 0.0

    def start(self) -> None:
        """Start the profiler. Call before the first step."""
        activities = [ProfilerActivity.CPU]
        if self.device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        plan = schedule(wait=0, warmup=_WARMUP_STEPS, active=self.num_steps + 1, repeat=1)
        self._profile = profile(activities=activities, schedule=plan)
        self._profile.start()
        self._recorded = -_WARMUP_STEPS

    def step(self) -> None:
        """Advance the profiler. Call after each step; does nothing before `start` and after the profile is written."""
        if self._profile is None:
            return
        self._recorded += 1
        if self._recorded == self.num_steps:
            self._write()
            return
        self._profile.step()
        if self._recorded == 0:
            self._wait_for_device()
            self._begun = time.perf_counter()

    def stop(self) -> None:
        """Stop the profiler and discard an incomplete profile."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None

    def _write(self) -> None:
        self._wait_for_device()
        seconds_a_step = (time.perf_counter() - self._begun) / self.num_steps
        recorded = self._profile
        assert recorded is not None  # only `step` calls this, while recording
        self.stop()
        with folder_written_atomically(self.folder) as folder:
            recorded.export_chrome_trace(str(folder / TRACE_NAME))
            table = operations_table(
                recorded.key_averages(), self.device, num_steps=self.num_steps, seconds_a_step=seconds_a_step
            )
            write_atomically(folder / TABLE_NAME, table)
        self.is_written = True

    def _wait_for_device(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def operations_table(events: Iterable[Any], device: torch.device, *, num_steps: int, seconds_a_step: float) -> str:
    """Format the costliest of `key_averages()` (on a GPU its kernels), one per line, by self time, without callees."""
    on_gpu = device.type == "cuda"
    rows = []
    for event in events:
        is_kernel = event.device_type == DeviceType.CUDA
        # The profiler's markers around whole steps are not operations.
        if is_kernel != on_gpu or event.key.startswith("ProfilerStep") or getattr(event, "is_user_annotation", False):
            continue
        microseconds = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        rows.append((microseconds / 1e3 / num_steps, event.count / num_steps, event.key))
    rows.sort(reverse=True)
    step_ms = 1e3 * seconds_a_step
    busy = sum(milliseconds for milliseconds, _, _ in rows) / step_ms
    worker = "the GPU computes" if on_gpu else "the main process computes"
    lines = [
        f"{num_steps} steps of {step_ms:,.2f} ms each; {worker} for {100 * busy:.0f} % of that time",
        "",
        f"{'share':>7} {'ms per step':>10} {'calls per step':>13}  operation",
    ]
    for milliseconds, calls, name in rows[:_NUM_OPERATIONS]:
        lines.append(
            f"{100 * milliseconds / step_ms:>6.1f}% {milliseconds:>10.3f} {calls:>13,.1f}  {name[:_NAME_WIDTH]}"
        )
    rest = sum(milliseconds for milliseconds, _, _ in rows[_NUM_OPERATIONS:])
    if rest:
        lines.append(f"{100 * rest / step_ms:>6.1f}% {rest:>10.3f} {'':>13}  {len(rows) - _NUM_OPERATIONS} others")
    return "\n".join(lines) + "\n"


_FIRST_STEPS = 10
"""Number of steps of this start before the profile: they compile and fill caches."""
_PROFILED_STEPS = 5


@dataclass(eq=False)
class ProfileSteps(pl.Callback):
    """Profiles a few steps of this start on the first rank and logs the paths of the result.

    A run with fewer steps left is profiled earlier, but never in its first step, which compiles. Profiling does not
    change the trained weights.
    """

    folder: Path
    clock: TrainingClock
    """Paused while the profiler starts, advances or writes."""
    num_steps: int
    """Steps of the whole run."""
    _profiler: StepProfiler | None = None
    _first_step: int = 0

    def setup(self, trainer: pl.Trainer, module: PretrainingModule, stage: str) -> None:
        """Enable the names of compiled kernels, before anything is compiled."""
        name_compiled_kernels()

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Choose the steps to profile."""
        if not module.machine.ranks.is_first:
            return
        left = self.num_steps - module.finished_steps
        num_steps = min(_PROFILED_STEPS, left - 2)  # one step compiles, one warms up the profiler
        if num_steps < 1:
            warn(f"runtime.profile: {left} steps are left, too few for a profile, which needs 3")
            return
        self._first_step = module.finished_steps + min(_FIRST_STEPS, left - num_steps - 1)
        self._profiler = StepProfiler(self.folder, module.machine.device, num_steps=num_steps)

    def on_train_batch_start(self, trainer: pl.Trainer, module: PretrainingModule, batch: Any, batch_idx: int) -> None:
        """Start the profiler at the first chosen step."""
        if self._profiler is not None and module.finished_steps == self._first_step:
            with self.clock.paused():
                self._profiler.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: PretrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance the profiler, which writes the profile after the last step."""
        if self._profiler is None:
            return
        with self.clock.paused():
            self._profiler.step()
        if self._profiler.is_written:
            say(
                f"profile: {self.folder / TABLE_NAME} has the costliest operations, {self.folder / TRACE_NAME} every "
                "one (open it at ui.perfetto.dev or chrome://tracing)"
            )
            self._profiler = None

    def on_train_end(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Stop the profiler if training ended before the profile was complete."""
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None

    def on_exception(self, trainer: pl.Trainer, module: PretrainingModule, exception: BaseException) -> None:
        self.on_train_end(trainer, module)
