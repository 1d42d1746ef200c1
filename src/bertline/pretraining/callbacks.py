"""What happens before the first step and between two: rehearsal, rows of metrics, probes, checkpoints."""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from bertline.encoders.loading import LanguageModel
from bertline.foundation.errors import MachineError
from bertline.foundation.files import append_lines
from bertline.foundation.progress import say, warn
from bertline.modeling.bert import set_attention
from bertline.modeling.config import flops_per_token
from bertline.pretraining.checkpoint import TrainingState
from bertline.pretraining.data import StepDataset
from bertline.pretraining.health import LOG_EVERY_STEPS, HealthMonitor, refuse_divergence, training_metrics
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import Place, Plan, RowLayout
from bertline.training.devices import sum_over_ranks
from bertline.training.interruption import StopAgreement, StopRequest
from bertline.training.matmul_rate import peak_rate
from bertline.training.progress import Seconds, TrainingProgress


@dataclass(eq=False)
class Rehearsal(pl.Callback):
    """Computes a step of each remaining phase before training starts, and changes nothing but the row layouts.

    A phase of long sequences can need several times the memory of the one before it, and would fail after days. Where
    the runtime section leaves the micro-batch open, it is the whole share of a step, or else the largest of a half, a
    quarter, ... of it that fits into the memory of every rank; with dropout, a resumed run keeps what was found (see
    `plan.frozen_layout`). Only on GPUs is lack of memory an error that a process survives.
    """

    dataset: StepDataset
    """Its `layouts` are changed before its first step is made."""

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        """Rehearse, if the device can; MachineError if a phase does not fit into its memory."""
        if not reports_lack_of_memory(module.machine.device):
            return
        kind, plan = module.model.attention, self.dataset.plan
        stretches = list(plan.stretches(module.finished_steps, plan.num_steps))
        for length in dict.fromkeys(place.max_length for place, _, _ in stretches):
            of_length = (one for one in stretches if one[0].max_length == length)
            place, start, end = max(of_length, key=lambda one: one[0].global_batch_size)
            set_attention(module.model, self.dataset.layouts[length].attention.kind)
            layout = self._fitting_layout(module, place, range(start, end))
            module.frozen_layout["lengths"][str(length)]["rows"] = layout.rows
        set_attention(module.model, kind)

    def _fitting_layout(self, module: PretrainingModule, place: Place, steps: range) -> RowLayout:
        """Give the dataset the layout, or the first one of fewer and fewer rows, that fits; return it."""
        device, ranks, length = module.machine.device, module.machine.ranks, place.max_length
        layout = tried = self.dataset.layouts[length]
        # Packed rows differ in number from step to step.
        step = max(steps[:4], key=lambda step: _most_rows(self.dataset[step]["micro_batches"]))
        share = _most_rows(self.dataset[step]["micro_batches"])
        most = -(-int(sum_over_ranks([share], device)[0]) // ranks.world_size)  # equal on all ranks
        while True:
            self.dataset.layouts = {**self.dataset.layouts, length: tried}
            micro_batches = self.dataset[step]["micro_batches"]
            rows = _most_rows(micro_batches)
            fits, memory = _rehearse(module, micro_batches, is_open=layout.rows is None)
            if sum_over_ranks([fits], device)[0] == ranks.world_size:
                break
            if most == 1 or layout.rows is not None:
                raise MachineError(
                    f"pretrain.phases[{place.phase}]: a micro-batch of {rows} row(s) of {length} tokens does not fit "
                    f"in the memory of {device} ({memory} when it failed). Set runtime.micro_batch_size and "
                    "runtime.micro_batch_tokens to null, and the largest micro-batch that fits is chosen (a resumed "
                    "run keeps the one that it began with); or take a smaller model or a shorter max_length, "
                    "pretrain.precision=bf16, another optimizer, or a device with more memory."
                )
            most = -(-most // 2)
            tried = replace(layout, rows=most)
        if ranks.is_first:
            say(
                f"rehearsed a step of {place.global_batch_size:,} sequences of {length} tokens: {len(micro_batches)} "
                f"micro-batch(es) of {rows} rows on each device, {memory}"
            )
        return tried


def reports_lack_of_memory(device: torch.device) -> bool:
    """Return whether lack of memory on this device is an error that a process survives."""
    return device.type == "cuda"


def _rehearse(
    module: PretrainingModule, micro_batches: Sequence[Mapping[str, Tensor]], *, is_open: bool
) -> tuple[bool, str]:
    """Return whether a step fits into memory, with some to spare if `is_open`; and its peak, in words.

    The first two micro-batches (the second adds to the gradients) and the last, which may be smaller, are computed.
    """
    device, on_gpu, fits = module.machine.device, module.machine.device.type == "cuda", True
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    try:
        module.rehearse([*micro_batches[:2], *micro_batches[2:][-1:]])
    except RuntimeError as error:
        cause: BaseException | None = error  # a compiler wraps it
        while cause and not (isinstance(cause, torch.OutOfMemoryError) or "CUBLAS_STATUS_ALLOC_FAILED" in str(cause)):
            cause = cause.__cause__
        if cause is None:
            raise
        fits = False
    peak = peak_memory_bytes(device)
    if not fits:
        gc.collect()  # after the except block, whose error holds on to the activations
    if not on_gpu:
        return fits, f"{peak / 1e9:.1f} GB of memory"
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    capacity = torch.cuda.get_device_properties(device).total_memory
    # The rest is for what other steps need in addition: a few more packed rows, gaps between blocks of memory.
    fits = fits and not (is_open and peak > 0.95 * capacity)
    return fits, f"{peak / 1e9:.1f} of {capacity / 1e9:.1f} GB of memory"


def _most_rows(micro_batches: Sequence[Mapping[str, Tensor]]) -> int:
    return max(len(micro_batch["input_ids"]) for micro_batch in micro_batches)


@dataclass(kw_only=True, eq=False)
class Throughput(pl.Callback):
    """Counts each step, shows progress, and writes a row of metrics every `LOG_EVERY_STEPS` steps and after the last.

    Since the previous row, also across a restart: `perf/tokens_per_s` (real tokens per second of training), `perf/mfu`
    (FLOP/s of the model for real tokens, as a fraction of the peak of all devices, see `training.matmul_rate`),
    `perf/data_wait_fraction` (of training time) and `perf/paused_fraction` (wall time of probes and saving). In
    addition `perf/memory_bytes` (peak of this process so far) and `perf/time_left_s` (see `TimeLeft`).
    """

    state: TrainingState
    monitor: HealthMonitor
    progress: TrainingProgress
    time_left: TimeLeft
    _matmul_rate: float | None = None  # FLOP/s of all ranks together; first rank only

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        machine = module.machine
        if machine.ranks.is_first:
            self._matmul_rate = machine.ranks.world_size * peak_rate(machine.device, machine.precision)
        self.state.clock.start()

    def on_train_batch_end(self, trainer: pl.Trainer, module: PretrainingModule, *batch: Any) -> None:
        step = module.finished_steps
        is_due = step % LOG_EVERY_STEPS == 0 or step == self.state.plan.num_steps
        total = module.interval.total() if is_due else None  # waits for the device, so that the clock is accurate
        left_s = self.time_left.after(step, self.state.clock.seconds)
        if total is not None:
            self._write_row(module, step, total, left_s)
        self.progress.show(step, left_s=left_s)

    def _write_row(self, module: PretrainingModule, step: int, total: dict[str, float], left_s: float | None) -> None:
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
        refuse_divergence(self.state.job, step, total, loss=metrics["train/loss"])
        self.state.num_tokens += tokens
        module.interval.clear()
        self.progress.note(metrics)
        if module.machine.ranks.is_first:
            self._raise_alarms(step, metrics)
            self.state.log.log(step, metrics)

    def _raise_alarms(self, step: int, metrics: dict[str, float]) -> None:
        for alarm in self.monitor.take(step, metrics):
            warn(f"pretraining, step {alarm.step:,}: {alarm.message}. {alarm.advice}")
            append_lines(self.state.job.health_path, [json.dumps(asdict(alarm))])


@dataclass
class TimeLeft:
    """Estimates the seconds left over all phases from their tokens: a later phase may take many times this one's.

    The pace is that of this start after its first step, which may compile, with its pauses.
    """

    plan: Plan
    _begun: tuple[int, float] | None = None

    def after(self, step: int, seconds: Seconds) -> float | None:
        """Return the seconds from the end of `step` (counted from 1) to that of the last step; None if unknown."""
        passed_s = seconds.trained_s + seconds.paused_s
        self._begun = first_step, begun_s = self._begun or (step, passed_s)
        if step == first_step:
            return None if step < self.plan.num_steps else 0.0
        done, left = (
            sum(count * length for length, count in self.plan.sequences(*steps).items())
            for steps in ((first_step, step), (step, self.plan.num_steps))
        )
        return (passed_s - begun_s) * left / done


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


@dataclass(kw_only=True, eq=False)
class Probing(pl.Callback):
    """Runs the probes that are due before the first step and after a step, and logs what they measure."""

    state: TrainingState

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        if module.finished_steps == 0:
            self._run(module)

    def on_train_batch_end(self, trainer: pl.Trainer, module: PretrainingModule, *batch: Any) -> None:
        self._run(module)

    def _run(self, module: PretrainingModule) -> None:
        step, is_last = module.finished_steps, module.finished_steps == self.state.plan.num_steps
        if due := [probe for probe in self.state.probes if is_last or step % probe.every_steps == 0]:
            with self.state.clock.paused():
                metrics = {key: value for probe in due for key, value in probe.probe(step).items()}
            if metrics and module.machine.ranks.is_first:
                self.state.log.log(step, metrics)


@dataclass(kw_only=True, eq=False)
class Checkpointing(pl.Callback):
    """Saves checkpoints, and stops training when a signal asks for it: all ranks after the same step.

    A checkpoint is saved every `pretrain.checkpoint_every_steps` steps, `runtime.checkpoint_every_s` seconds after the
    last one, after the last step, and before a requested stop.
    """

    state: TrainingState
    request: StopRequest
    stopped: bool = False
    _saved_at: float = 0.0
    _listening: ExitStack = field(default_factory=ExitStack)

    def on_train_start(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        every_s, self._saved_at = self.state.job.runtime.checkpoint_every_s, time.monotonic()
        self._agreement = StopAgreement(
            self.request,
            ranks=module.machine.ranks,
            device=module.machine.device,
            most_steps=LOG_EVERY_STEPS,
            now=lambda: self.state.clock.seconds.trained_s,
            asks_to_save=lambda: every_s is not None and time.monotonic() - self._saved_at >= every_s,
        )
        self._listening.enter_context(self.request.listening())  # Lightning has just installed its own handlers

    def on_train_end(self, trainer: pl.Trainer, module: PretrainingModule) -> None:
        self._listening.close()

    def on_exception(self, trainer: pl.Trainer, module: PretrainingModule, exception: BaseException) -> None:
        self._listening.close()

    def on_train_batch_end(self, trainer: pl.Trainer, module: PretrainingModule, *batch: Any) -> None:
        self.state.writer.check()
        step, num_steps = module.finished_steps, self.state.plan.num_steps
        self.stopped = step < num_steps and self._agreement.reached(step)
        cadence = self.state.job.pretrain.checkpoint_every_steps
        is_due = step % cadence == 0 or step == num_steps
        if self.stopped or is_due or self._agreement.is_save_due:
            self._saved_at = time.monotonic()
            with self.state.clock.paused():
                refuse_divergence(self.state.job, step, module.interval.total(), weights=module.parameters())
                self.state.save(wait=self.stopped or step == num_steps)
        if self.stopped:
            # No rank exits before the first rank has saved: torchrun and srun may kill the others once one has exited.
            sum_over_ranks([1], module.machine.device)
            trainer.should_stop = True
