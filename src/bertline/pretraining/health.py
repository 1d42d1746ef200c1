"""Health of a training: sums of an interval, alarms, and rollbacks to the last good checkpoint when it diverges.

A rollback is a restart within the process from the newest checkpoint before the failure; later checkpoints record which
examples are skipped.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bertline.examples.store import read_examples_manifest
from bertline.foundation.errors import BertlineError
from bertline.foundation.files import append_lines
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.progress import warn
from bertline.modeling.weight_files import is_finite
from bertline.pretraining.config import HealthConfig
from bertline.pretraining.data import STEP_COUNTS, StepBatch
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.objectives.base import Objective, means, means_of, weighted_loss
from bertline.pretraining.plan import Plan, SkippedSequences
from bertline.training.checkpoints import CheckpointFolder
from bertline.training.devices import Machine, sum_over_ranks
from bertline.training.process_group import decide_on_first_rank

LOG_EVERY_STEPS = 20
"""Number of steps per row of metrics."""
# Sums that every rank computes by itself, with the same values on all ranks.
_STEP_SUMS = ("grad_norm", "steps", "skipped_steps")


class IntervalSums:
    """Sums of an objective, and counts, since the last row of metrics; on the device until they are read.

    A step whose gradient norm is not finite is skipped by the optimizer: only the `timed_*` counts, from which
    throughput follows, include it.
    """

    def __init__(self, device: torch.device, names: Sequence[str]) -> None:
        self._device = device
        self._names = tuple(names)
        self.clear()

    def clear(self) -> None:
        """Start the next interval."""
        names = (*self._names, *STEP_COUNTS, *_STEP_SUMS, *(f"timed_{name}" for name in STEP_COUNTS))
        self._before = dict.fromkeys(names, 0.0)
        self._step: Tensor | None = None
        self._steps: list[tuple[Tensor, dict[str, int]]] = []

    def add_micro_batch(self, sums: Mapping[str, Tensor]) -> None:
        """Add the sums of one micro-batch."""
        values = torch.stack([sums[name] for name in self._names]).detach()
        self._step = values if self._step is None else self._step + values

    def add_step(self, grad_norm: Tensor, batch: StepBatch) -> None:
        """Finish a step: add the counts of this rank's share, and the gradient norm, which is equal on all ranks."""
        assert self._step is not None  # a step has a micro-batch
        counts = {name: int(batch[f"num_{name}"]) for name in STEP_COUNTS}  # type: ignore[literal-required]
        self._steps.append((torch.cat([self._step, grad_norm.detach().reshape(1)]), counts))
        self._step = None

    def total(self) -> dict[str, float]:
        """Return the sums over all ranks (for steps and norms: of this rank). Waits for the device."""
        total = dict(self._before)
        computed = torch.stack([values for values, _ in self._steps]).tolist() if self._steps else []
        for values, (_, counts) in zip(computed, self._steps, strict=True):
            is_skipped = not math.isfinite(values[-1])
            total["steps"] += 1
            total["skipped_steps"] += is_skipped
            if not is_skipped:
                for name, value in (*zip((*self._names, "grad_norm"), values, strict=True), *counts.items()):
                    total[name] += value
            for name, count in counts.items():
                total[f"timed_{name}"] += count
        names = [name for name in total if name not in _STEP_SUMS]
        summed = sum_over_ranks([total[name] for name in names], self._device)
        return {**total, **dict(zip(names, summed, strict=True))}

    def restore(self, total: Mapping[str, float], *, is_first_rank: bool) -> None:
        """Resume from the `total` of a checkpoint: the first rank carries the sums of all ranks."""
        self.clear()
        self._before.update({name: value for name, value in total.items() if is_first_rank or name in _STEP_SUMS})


def training_metrics(total: Mapping[str, float], objective: Objective) -> dict[str, float]:
    """Return the loss and the means of an interval; NaN if all its steps were skipped."""
    averages, steps = means(objective, total), total["steps"] - total["skipped_steps"]
    return {
        "train/loss": weighted_loss(objective, averages),
        **{f"train/{name}": mean for name, mean in averages.items()},
        "optim/grad_norm": total["grad_norm"] / steps if steps else math.nan,
        "optim/skipped_steps": total["skipped_steps"],
    }


_CALMER = (
    "Lower optimizer.lr, lengthen schedule.num_warmup_steps or set optimizer.max_grad_norm=1.0; in bf16, try "
    "pretrain.precision=fp32."
)
ADVICE: dict[str, str] = {
    "non_finite": _CALMER,
    "skipped_steps": f"Now and then this does no harm. {_CALMER}",
    "spike": "If it does not come back within some hundred steps, lower optimizer.lr, lengthen "
    "schedule.num_warmup_steps, lower optimizer.max_grad_norm, or let training roll back and skip the examples "
    "(pretrain.health.rewind_on_spike=true).",
    "gradients_vanish": "The weights hardly learn. See the weights of objective, model.initializer_range (0.02 in "
    "the paper) and the checkpoint of pretrain.start_from; in bf16, try pretrain.precision=fp32.",
    "gradients_explode": "Lower model.initializer_range (0.02 in the paper) or optimizer.lr, lengthen "
    "schedule.num_warmup_steps, set optimizer.max_grad_norm=1.0.",
    "data_wait": "Raise runtime.num_workers, leave a core to each worker (runtime.num_threads), and keep the examples "
    "on a disk of this machine.",
}
"""Advice for each kind of alarm that any objective can raise; the texts name configuration keys."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """A training problem that needs attention, detected after so many finished steps."""

    kind: str
    step: int
    message: str
    advice: str


@dataclass
class HealthMonitor:
    """Checks the rows of a training run in order and reports each problem once until it is over."""

    config: HealthConfig
    num_warmup_steps: int
    objective: Objective
    plan: Plan
    examples: Mapping[str, Any]
    """Manifest of the examples, from which the baselines follow."""

    _phase: int | None = None
    _rows: deque[tuple[int, Mapping[str, float]]] = field(default_factory=deque)
    _losses: deque[float] = field(default_factory=lambda: deque(maxlen=9))
    """Of the last rows, whose median a spike is relative to."""
    _standing: set[str] = field(default_factory=set)

    def take(self, step: int, metrics: Mapping[str, float]) -> list[Alarm]:
        """Check the next row of metrics and return the new alarms. Rows from probes are ignored."""
        if "train/loss" not in metrics:
            return []
        problems = dict(self._problems(step, metrics))
        new = [kind for kind in problems if kind not in self._standing]
        self._standing = set(problems)
        advice = {**ADVICE, **self.objective.advice}
        return [Alarm(kind=kind, step=step, message=problems[kind], advice=advice[kind]) for kind in new]

    def _problems(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        """Yield kind and message of each problem of a row."""
        config, place = self.config, self.plan.place(step - 1)
        if place.phase != self._phase:  # losses at different lengths are not comparable
            self._phase = place.phase
            self._rows.clear()
            self._losses.clear()

        loss, skipped = metrics["train/loss"], metrics.get("optim/skipped_steps", 0.0)
        if skipped > config.max_skipped_steps:
            yield "non_finite", _skipped_in_words(skipped)
        elif not math.isfinite(loss):
            yield "non_finite", f"the loss is {loss}"
        elif skipped:
            yield "skipped_steps", f"{_skipped_in_words(skipped)} and were skipped"
        if not math.isfinite(loss):
            return

        median = statistics.median(self._losses) if len(self._losses) >= 3 else math.inf
        if loss > config.spike_factor * median:
            # The row stays out of the median: a loss that never recovers must not become the baseline.
            yield "spike", f"the loss rose to {loss:.2f}; the median of the rows before is {median:.2f}"
        else:
            self._losses.append(loss)

        norm = metrics["optim/grad_norm"]
        if norm < config.min_grad_norm:
            yield "gradients_vanish", f"the mean norm of the gradients is {norm:.2g}"
        if norm > config.max_grad_norm:
            yield "gradients_explode", f"the mean norm of the gradients, before clipping, is {norm:.2g}"

        patience = config.patience_steps
        self._rows.append((step, metrics))
        while self._rows[0][0] <= step - patience:
            self._rows.popleft()
        first_step = sum(phase.steps for phase in self.plan.phases[: place.phase])
        if step - max(self.num_warmup_steps, first_step) >= patience:
            known = {**self.examples, **self.examples["lengths"][str(place.max_length)]}
            baselines = self.objective.baselines(known)
            averages = {mean.name: self._mean(f"train/{mean.name}") for mean in means_of(self.objective)}
            yield from self.objective.alarms(averages, baselines, config, steps=patience)
        share = self._mean("perf/data_wait_fraction")
        if step - first_step >= patience and share > config.max_data_wait_fraction:
            yield "data_wait", f"{share:.0%} of the time of the last steps was spent waiting for data"

    def _mean(self, key: str) -> float:
        return statistics.fmean(metrics[key] for _, metrics in self._rows)


def _skipped_in_words(num_steps: float) -> str:
    return f"{num_steps:.0f} steps since the last row had gradients that are infinite or NaN"


class TrainingDivergedError(BertlineError):
    """Training failed again after the allowed number of rollbacks."""


class DivergenceGuard:
    """Passes every row of metrics to the monitor on the first rank; all ranks make the same decision."""

    def __init__(self, job: PretrainJob, plan: Plan, machine: Machine, rewinds: Sequence[Mapping[str, Any]]) -> None:
        self.failure: Alarm | None = None
        """Reason why training must roll back; None while there is none."""
        self._first_bad_step = 0  # that may be to blame, 0-based
        self._job, self._plan, self._machine, self._rewinds = job, plan, machine, rewinds
        self._config = job.pretrain.health
        examples = read_examples_manifest(job.examples_folder)
        self._monitor = HealthMonitor(self._config, job.schedule.num_warmup_steps, job.objective, plan, examples)
        self._steps_of_row = 1
        if machine.ranks.is_first:
            # The rows determine the state of the monitor, so the checkpoint need not store it.
            for row in read_metrics(job.metrics_path):
                self._monitor.take(row.step, row.metrics)

    def accepts_row(self, step: int, metrics: Mapping[str, float], *, num_steps: int) -> bool:
        """Check the row of the last `num_steps` steps. False: it must not be written, and training must roll back."""
        alarms = self._monitor.take(step, metrics) if self._machine.ranks.is_first else []
        # After a spike, training can continue without a rollback.
        rolls_back = self._config.rewind_on_spike and len(self._rewinds) < self._config.max_rewinds
        fatal_kinds = ("non_finite", "spike") if rolls_back else ("non_finite",)
        fatal = next((alarm for alarm in alarms if alarm.kind in fatal_kinds), None)
        for alarm in alarms:
            if alarm is not fatal:
                warn(f"pretraining, step {alarm.step:,}: {alarm.message}. {alarm.advice}")
                self._log(dataclasses.asdict(alarm))
        self._steps_of_row = num_steps
        return self._agree(fatal, step, step - num_steps)

    def accepts_state(self, step: int, total: Mapping[str, float], weights: Iterable[Tensor]) -> bool:
        """Check the weights that are about to be saved, and the sums since the last row; as `accepts_row`."""
        message = None
        if total["skipped_steps"] > self._config.max_skipped_steps:
            message = _skipped_in_words(total["skipped_steps"])
        elif not all(map(is_finite, weights)):
            message = "there are weights that are infinite or NaN"
        fatal = message and Alarm(kind="non_finite", step=step, message=message, advice=_CALMER)
        # Right after a row the interval is empty: the steps of that row are to blame, they made the last updates.
        return self._agree(fatal or None, step, step - int(total["steps"] or self._steps_of_row))

    def _agree(self, fatal: Alarm | None, step: int, first_step: int) -> bool:
        """Return whether no rank found a fatal problem; otherwise set `failure` on every rank."""
        if not sum_over_ranks([fatal is not None], self._machine.device)[0]:
            return True
        elsewhere = "another rank found that training must go back"
        self.failure = fatal or Alarm(kind="non_finite", step=step, message=elsewhere, advice=_CALMER)
        self._first_bad_step = first_step
        return False

    def _log(self, alarm: Mapping[str, Any]) -> None:
        append_lines(self._job.health_path, [json.dumps(alarm)])

    def roll_back(self, alarm: Alarm, checkpoints: CheckpointFolder) -> list[dict[str, Any]]:
        """Delete the checkpoints that a failure may have corrupted, and choose what to skip. Called on all ranks.

        Returns:
            The rewinds of the run plus a new one, as rows of health.jsonl: the alarm, the step that training rolls back
            to (None for its start) and the examples that it skips.

        Raises:
            TrainingDivergedError: The allowed number of rollbacks is used up.
        """
        is_first, most = self._machine.ranks.is_first, self._config.max_rewinds
        if len(self._rewinds) >= most:
            if is_first:
                self._log(dataclasses.asdict(alarm))
            steps = ", ".join(f"{rewind['step']:,}" for rewind in self._rewinds) or "never"
            raise TrainingDivergedError(
                f"pretraining failed after step {alarm.step:,}: {alarm.message}. It rolled back as often as "
                f"pretrain.health.max_rewinds={most} allows (from step: {steps}). {alarm.advice} The last good "
                f"checkpoint is in {self._job.checkpoints_folder}."
            )
        if is_first:
            checkpoints.give_up_after(self._first_bad_step)
        target = decide_on_first_rank(lambda: next(reversed(checkpoints.steps), None), self._machine.device)
        # Skip to the end of the row, wherever in it the failure was detected: bad examples seldom come alone.
        end = min(self._plan.num_steps, math.ceil(alarm.step / LOG_EVERY_STEPS) * LOG_EVERY_STEPS)
        skipped = [dataclasses.asdict(one) for one in self._plan.skipping(max(self._first_bad_step, target or 0), end)]
        rewind = {**dataclasses.asdict(alarm), "rewound_to": target, "skipped": skipped}
        if is_first:
            self._log(rewind)
            warn(
                f"pretraining, step {alarm.step:,}: {alarm.message}. It rolls back to "
                f"{'its start' if target is None else f'step {target:,}'} and skips "
                f"{sum(one['sequences'] for one in skipped):,} sequences ({len(self._rewinds) + 1} of at most {most} "
                f"times). {alarm.advice}"
            )
        return [*map(dict, self._rewinds), rewind]


def skipped_in(rewinds: Sequence[Mapping[str, Any]]) -> list[SkippedSequences]:
    """Return the examples that a plan must skip after these rewinds."""
    return [SkippedSequences(**one) for rewind in rewinds for one in rewind["skipped"]]
