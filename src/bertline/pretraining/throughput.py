"""Throughput: the rows of metrics with losses, speed and utilisation, the time that is left, and a profile."""

from __future__ import annotations

import resource
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch.profiler import ProfilerActivity, profile, schedule

from bertline.encoders.loading import LanguageModel
from bertline.examples.masking import masking_policy, max_targets
from bertline.foundation.files import folder_written_atomically
from bertline.foundation.progress import say, warn
from bertline.modeling.flops import flops_per_token
from bertline.pretraining.checkpoint import TrainingState
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.health import DivergenceGuard
from bertline.pretraining.module import LOG_EVERY_STEPS, PretrainingModule, training_metrics
from bertline.pretraining.plan import Plan
from bertline.pretraining.row_layout import RowLayout
from bertline.training.clock import Seconds, TrainingClock
from bertline.training.matmul_rate import peak_rate
from bertline.training.private_api import name_compiled_kernels
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
    _matmul_rate: float | None = None  # FLOP/s of all ranks together; first rank only

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Find the peak for `perf/mfu`, and start the clock."""
        machine = module.machine
        if machine.ranks.is_first:
            self._matmul_rate = machine.ranks.world_size * peak_rate(machine.device, machine.precision)
        self.state.clock.start()

    def on_train_batch_end(self, trainer: pl.Trainer, module: PretrainingModule, *batch: Any) -> None:
        """Count the step, write a row of metrics if one is due, and show progress."""
        step = module.finished_steps
        is_due = step % LOG_EVERY_STEPS == 0 or step == self.state.plan.num_steps
        total = module.interval.total() if is_due else None  # waits for the device, so that the clock is accurate
        left_s = self.time_left.after(step, self.state.clock.seconds)
        if total is not None and not self._write_row(module, step, total, left_s):
            trainer.should_stop = True
        self.progress.show(step, left_s=left_s)

    def _write_row(self, module: PretrainingModule, step: int, total: dict[str, float], left_s: float | None) -> bool:
        now, tokens = self.state.clock.seconds, total["timed_tokens"]
        took = now - self.state.row_begun
        metrics = {
            **training_metrics(total, module.objective),
            "optim/lr": module.learning_rate(step - 1),
            "perf/tokens_per_s": tokens / took.trained_s,
            "perf/data_wait_fraction": took.waited_s / took.trained_s,
            "perf/paused_fraction": took.paused_s / (took.trained_s + took.paused_s),
            "perf/memory_bytes": peak_memory_bytes(module.machine.device),
        }
        if self._matmul_rate is not None:
            # FLOPs are linear in tokens, pairs and targets, except for the small part that the last layer computes at
            # the first position of each sequence, so that this also holds for rows with several sequence lengths.
            flops = flops_of(
                module.model, seq_len=total["timed_pairs"] / tokens, target_fraction=total["timed_targets"] / tokens
            )
            metrics["perf/mfu"] = flops * tokens / took.trained_s / self._matmul_rate
        if left_s is not None:
            metrics["perf/time_left_s"] = left_s
        self.state.row_begun = now
        if not self.guard.accepts_row(step, metrics, num_steps=int(total["steps"])):
            return False
        self.state.num_tokens += tokens
        module.interval.clear()
        self.progress.note(metrics)
        if module.machine.ranks.is_first:
            self.state.log.log(step, metrics)
        return True


@dataclass
class TimeLeft:
    """Estimates the seconds left over all phases: a step of a later phase may cost many times a step of this one.

    The rate is that of the last 200 steps, in work per second of training. Steps that may compile do not count: the
    first step of a start and of each length. Lengths that are not reached yet are assumed to run at the current rate,
    pauses to come as often as in this start; costs that do not depend on the batch, such as the optimizer update, are
    not modelled separately.
    """

    plan: Plan
    work: Mapping[int, float]
    """Work per sequence of each length, in any unit; see `work_of_sequences`."""

    def __post_init__(self) -> None:
        self._newest: deque[tuple[float, float]] = deque(maxlen=_WINDOW_STEPS)
        self._last: tuple[int, float] | None = None
        self._begun: tuple[int, float] | None = None

    def after(self, step: int, seconds: Seconds) -> float | None:
        """Return the seconds from the end of `step` (counted from 1) to that of the last step; None if unknown."""
        # The pauses so far, before the first step of this start, will not recur.
        self._begun = first_step, paused_s = self._begun or (step - 1, seconds.paused_s)
        length = self.plan.place(step - 1).max_length
        if self._last is not None and self._last[0] == length:
            self._newest.append((self._work_of(step - 1, step), seconds.trained_s - self._last[1]))
        self._last = (length, seconds.trained_s)
        num_left = self.plan.num_steps - step
        if num_left == 0:
            return 0.0
        if not self._newest:
            return None
        work, took_s = (sum(values) for values in zip(*self._newest, strict=True))
        pauses_s = (seconds.paused_s - paused_s) / (step - first_step) * num_left
        return self._work_of(step, self.plan.num_steps) * took_s / work + pauses_s

    def _work_of(self, first_step: int, end_step: int) -> float:
        taken = self.plan.sequences(first_step, end_step)
        return sum(count * self.work[length] for length, count in taken.items())


def work_of_sequences(
    model: LanguageModel, examples: Mapping[int, MaskedExamples], layouts: Mapping[int, RowLayout]
) -> dict[int, float]:
    """Return the FLOPs per sequence of each length, forward and backward, including padding unless rows are packed."""
    work = {}
    for length, of_length in examples.items():
        store, rows = of_length.store, 1 if of_length.pairs_together is None else 2
        positions = rows * length * (of_length.fill if layouts[length].packed else 1.0)
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


_FIRST_STEPS = 10
"""Number of steps of this start before the profile: they compile and fill caches."""
_PROFILED_STEPS = 5


@dataclass(eq=False)
class ProfileSteps(pl.Callback):
    """Profiles a few steps of this start on the first rank (`runtime.profile=true`), which changes no weights.

    The folder has `trace.json.gz` (Chrome's format) and `top_operations.txt`. A run with fewer steps left is profiled
    earlier, but never in its first step, which compiles.
    """

    folder: Path
    clock: TrainingClock
    """Paused while the profiler advances or writes."""
    num_steps: int
    """Steps of the whole run."""
    _profile: profile | None = None

    def setup(self, trainer: pl.Trainer, module: PretrainingModule, stage: str) -> None:
        """Enable the names of compiled kernels, before anything is compiled."""
        name_compiled_kernels()

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Choose the steps to profile."""
        if not module.machine.ranks.is_first:
            return
        left = self.num_steps - module.finished_steps
        active = min(_PROFILED_STEPS, left - 2)  # one step compiles, one warms up the profiler
        if active < 1:
            warn(f"runtime.profile: {left} steps are left, too few for a profile, which needs 3")
            return
        on_gpu = module.machine.device.type == "cuda"

        def write(recorded: profile) -> None:
            table = recorded.key_averages().table(
                sort_by="self_device_time_total" if on_gpu else "self_cpu_time_total", row_limit=10
            )
            with folder_written_atomically(self.folder) as folder:
                recorded.export_chrome_trace(str(folder / "trace.json.gz"))
                (folder / "top_operations.txt").write_text(f"{active} steps\n\n{table}\n", encoding="utf-8")
            say(
                f"profile: {self.folder / 'top_operations.txt'} has the costliest operations, "
                f"{self.folder / 'trace.json.gz'} every one (open it at ui.perfetto.dev or chrome://tracing)"
            )

        self._profile = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])],
            schedule=schedule(wait=min(_FIRST_STEPS, left - active - 1), warmup=1, active=active, repeat=1),
            on_trace_ready=write,
        )
        self._profile.start()

    def on_train_batch_end(self, trainer: pl.Trainer, module: PretrainingModule, *batch: Any) -> None:
        """Advance the profiler, which writes the profile after the last step to profile."""
        if self._profile is not None:
            with self.clock.paused():
                self._profile.step()

    def on_train_end(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Stop the profiler; where training ended before it was complete, the profile has fewer steps."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None

    def on_exception(self, trainer: pl.Trainer, module: PretrainingModule, exception: BaseException) -> None:
        self.on_train_end(trainer, module)
