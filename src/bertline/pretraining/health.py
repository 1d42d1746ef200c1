"""Health of a training: sums of an interval, alarms, and the error that ends it when it diverges."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from bertline.examples.store import read_examples_manifest
from bertline.foundation.errors import BertlineError
from bertline.foundation.metrics_log import read_metrics
from bertline.modeling.weight_files import is_finite
from bertline.pretraining.config import HealthConfig
from bertline.pretraining.data import STEP_COUNTS, StepBatch
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.objectives.base import Objective, means, means_of, weighted_loss
from bertline.pretraining.plan import Plan
from bertline.training.devices import sum_over_ranks

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
    "skipped_steps": f"Now and then this does no harm. {_CALMER}",
    "spike": "If it does not come back within some hundred steps, lower optimizer.lr, lengthen "
    "schedule.num_warmup_steps or lower optimizer.max_grad_norm.",
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

    @classmethod
    def of(cls, job: PretrainJob, plan: Plan) -> Self:
        """Return a monitor that has checked the rows of the run so far."""
        examples = read_examples_manifest(job.examples_folder)
        monitor = cls(job.pretrain.health, job.schedule.num_warmup_steps, job.objective, plan, examples)
        for row in read_metrics(job.metrics_path):
            monitor.take(row.step, row.metrics)
        return monitor

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

        loss, skipped = metrics["train/loss"], metrics["optim/skipped_steps"]
        if skipped:
            yield "skipped_steps", f"{_skipped_in_words(skipped)} and were skipped"

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
    """Gradients, the loss or weights are infinite or NaN, so that more steps would teach nothing."""


def refuse_divergence(
    job: PretrainJob, step: int, total: Mapping[str, float], *, loss: float = 0.0, weights: Iterable[Tensor] = ()
) -> None:
    """Raise TrainingDivergedError where training cannot continue after a step: on all ranks, as their values are equal.

    Args:
        total: Sums since the last row of metrics.
        loss: Loss of a row that is about to be written.
        weights: Weights that are about to be saved.
    """
    if total["skipped_steps"] > job.pretrain.health.max_skipped_steps:
        problem = _skipped_in_words(total["skipped_steps"])
    elif not math.isfinite(loss):
        problem = f"the loss is {loss}"
    elif not all(map(is_finite, weights)):
        problem = "there are weights that are infinite or NaN"
    else:
        return
    saved = (
        f" The last good checkpoint is in {job.checkpoints_folder}; a run with other settings starts from its weights "
        f"with pretrain.start_from={job.latest_folder}."
    )
    raise TrainingDivergedError(
        f"pretraining failed after step {step:,}: {problem}. {_CALMER}{saved if job.latest_folder.exists() else ''}"
    )
