"""Monitoring of a training: logs alarms; rolls back to the last good checkpoint on divergence.

A rollback is a restart within the process: the newest checkpoint from before the failure is loaded as after a kill, and
the examples on which training failed are skipped. Every later checkpoint records which examples were skipped.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import append_lines, read_json_lines, write_atomically
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.progress import warn
from bertline.pretraining.config import HealthConfig
from bertline.pretraining.data import read_examples_manifest
from bertline.pretraining.interval import LOG_EVERY_STEPS
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.objectives.base import Objective
from bertline.pretraining.plan import Plan, SkippedSequences
from bertline.training.checkpoints import CheckpointFolder
from bertline.training.devices import Machine, sum_over_ranks
from bertline.training.groupwise import all_finite
from bertline.training.process_group import decide_on_first_rank

_MEDIAN_ROWS = 9
_FEWEST_ROWS = 3
"""Spikes are relative to the median of the last `_MEDIAN_ROWS` rows; there are none before `_FEWEST_ROWS` rows."""

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
    """A training problem that needs attention."""

    kind: str
    step: int
    """Number of finished steps when the problem was detected."""
    message: str
    advice: str

    @classmethod
    def of(cls, kind: str, step: int, message: str) -> Alarm:
        """Create an alarm with the advice for its kind, one of `ADVICE`."""
        return cls(kind=kind, step=step, message=message, advice=ADVICE[kind])


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Properties of one training phase."""

    first_step: int
    """First step of the phase, 0-based."""
    baselines: Mapping[str, float]
    """Baselines of the objective's metrics at the sequence length of the phase."""


@dataclass
class HealthMonitor:
    """Checks the rows of a training run in order and reports each problem once until it is over."""

    config: HealthConfig
    num_warmup_steps: int
    objective: Objective
    """Judges which metrics are still at their baselines."""
    stretch_of: Callable[[int], Stretch]
    """Returns the phase of a 0-based step."""

    def __post_init__(self) -> None:
        self._stretch: Stretch | None = None
        self._rows: deque[tuple[int, Mapping[str, float]]] = deque()
        self._losses: deque[float] = deque(maxlen=_MEDIAN_ROWS)
        self._standing: set[str] = set()

    def take(self, step: int, metrics: Mapping[str, float]) -> list[Alarm]:
        """Check the next row of metrics and return the new alarms. Rows from probes are ignored."""
        if "train/loss" not in metrics:
            return []
        stretch = self.stretch_of(step - 1)
        if stretch != self._stretch:  # losses at different lengths are not comparable
            self._stretch = stretch
            self._rows.clear()
            self._losses.clear()
        problems = dict(self._non_finite(metrics))
        if math.isfinite(metrics["train/loss"]):
            self._rows.append((step, metrics))
            while self._rows[0][0] <= step - self.config.patience_steps:
                self._rows.popleft()
            for find in (self._spike, self._gradients, self._at_baseline, self._data_wait):
                problems.update(find(step, metrics))
        new = [kind for kind in problems if kind not in self._standing]
        self._standing = set(problems)
        advice = {**ADVICE, **self.objective.advice}
        return [Alarm(kind=kind, step=step, message=problems[kind], advice=advice[kind]) for kind in new]

    def _non_finite(self, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        skipped = metrics.get("optim/skipped_steps", 0.0)
        found = f"{skipped:.0f} steps since the last row had gradients that are infinite or NaN"
        if skipped > self.config.max_skipped_steps:
            yield "non_finite", found
        elif not math.isfinite(metrics["train/loss"]):
            yield "non_finite", f"the loss is {metrics['train/loss']}"
        elif skipped:
            yield "skipped_steps", f"{found} and were skipped"

    def _spike(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        loss = metrics["train/loss"]
        median = statistics.median(self._losses) if len(self._losses) >= _FEWEST_ROWS else math.inf
        if loss > self.config.spike_factor * median:
            # The row stays out of the median: a loss that never recovers must not become the baseline.
            yield "spike", f"the loss rose to {loss:.2f}; the median of the rows before is {median:.2f}"
        else:
            self._losses.append(loss)

    def _gradients(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        norm = metrics["optim/grad_norm"]
        if norm < self.config.min_grad_norm:
            yield "gradients_vanish", f"the mean norm of the gradients is {norm:.2g}"
        if norm > self.config.max_grad_norm:
            yield "gradients_explode", f"the mean norm of the gradients, before clipping, is {norm:.2g}"

    def _at_baseline(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        patience = self.config.patience_steps
        assert self._stretch is not None  # set by `take`
        if step - max(self.num_warmup_steps, self._stretch.first_step) < patience:
            return
        baselines = self._stretch.baselines
        means = {name: self._mean(f"train/{name}") for name in baselines}
        yield from self.objective.alarms(means, baselines, self.config, steps=patience)

    def _data_wait(self, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        assert self._stretch is not None  # set by `take`
        share = self._mean("perf/data_wait_fraction")
        if step - self._stretch.first_step >= self.config.patience_steps and (
            share > self.config.max_data_wait_fraction
        ):
            yield "data_wait", f"{share:.0%} of the time of the last steps was spent waiting for data"

    def _mean(self, key: str) -> float:
        return statistics.fmean(metrics[key] for _, metrics in self._rows)


class TrainingDivergedError(BertlineError):
    """Training failed again after the allowed number of rollbacks."""


class DivergenceGuard:
    """Passes every row of metrics to the monitor on the first rank; all ranks make the same decision."""

    def __init__(self, job: PretrainJob, plan: Plan, machine: Machine, rewinds: Sequence[Mapping[str, Any]]) -> None:
        self.failure: Alarm | None = None
        """Reason why training must roll back; None while there is none."""
        self._first_bad_step = 0
        """First step that may be to blame, 0-based; the last one is that after which the failure was detected."""
        self._job = job
        self._plan = plan
        self._config = job.pretrain.health
        self._machine = machine
        self._rewinds = rewinds
        self._monitor = _monitor(job, plan)
        self._steps_of_row = 1
        if machine.ranks.is_first:
            # The rows determine the state of the monitor, so the checkpoint need not store it.
            for row in read_metrics(job.metrics_path):
                self._monitor.take(row.step, row.metrics)

    def accepts_row(self, step: int, metrics: Mapping[str, float], *, num_steps: int) -> bool:
        """Check the row of the last `num_steps` steps. False: it must not be written, and training must roll back."""
        alarms = self._monitor.take(step, metrics) if self._machine.ranks.is_first else []
        fatal = next((alarm for alarm in alarms if self._is_fatal(alarm)), None)
        for alarm in alarms:
            if alarm is not fatal:
                warn(f"pretraining, step {alarm.step:,}: {alarm.message}. {alarm.advice}")
                self._log(alarm)
        self._steps_of_row = num_steps
        return self._agree(fatal, step, step - num_steps)

    def accepts_state(self, module: PretrainingModule) -> bool:
        """Check the state that is about to be saved. False: it must not be saved, and training must roll back."""
        step, total = module.finished_steps, module.interval.total()
        problem = None
        if total["skipped_steps"] > self._config.max_skipped_steps:
            problem = f"{total['skipped_steps']:.0f} steps since the last row had gradients that are infinite or NaN"
        elif not all_finite(module):
            problem = "there are weights that are infinite or NaN"
        fatal = None if problem is None else Alarm.of("non_finite", step, problem)
        # Right after a row the interval is empty: the steps of that row are to blame, they made the last updates.
        return self._agree(fatal, step, step - int(total["steps"] or self._steps_of_row))

    def _is_fatal(self, alarm: Alarm) -> bool:
        if alarm.kind == "spike":
            # Without a rollback, training can continue.
            return self._config.rewind_on_spike and len(self._rewinds) < self._config.max_rewinds
        return alarm.kind == "non_finite"

    def _agree(self, fatal: Alarm | None, step: int, first_step: int) -> bool:
        """Return whether no rank found a fatal problem; otherwise set `failure` on every rank."""
        if not sum_over_ranks([fatal is not None], self._machine.device)[0]:
            return True
        alarm = fatal or Alarm.of("non_finite", step, "another rank found that training must go back")
        self.failure, self._first_bad_step = alarm, first_step
        return False

    def _log(self, alarm: Alarm, **rewind: Any) -> None:
        append_lines(self._job.health_path, [json.dumps({**dataclasses.asdict(alarm), **rewind})])

    def roll_back(self, alarm: Alarm, checkpoints: CheckpointFolder) -> list[dict[str, Any]]:
        """Discard the steps of a failure: delete the checkpoints that they may have corrupted and choose what to skip.

        Called on all ranks. The next start finds the checkpoint to resume from, or starts the run over.

        Returns:
            The rewinds of the run plus a new one, as plain data for the checkpoint: the step of the failure, the step
            that training rolls back to (None for its start) and the examples that it skips.

        Raises:
            TrainingDivergedError: The allowed number of rollbacks is used up.
        """
        is_first, most = self._machine.ranks.is_first, self._config.max_rewinds
        if len(self._rewinds) >= most:
            if is_first:
                self._log(alarm)
            steps = ", ".join(f"{rewind['step']:,}" for rewind in self._rewinds) or "never"
            raise TrainingDivergedError(
                f"pretraining failed after step {alarm.step:,}: {alarm.message}. It rolled back as often as "
                f"pretrain.health.max_rewinds={most} allows (from step: {steps}), each time "
                f"skipping the examples that it failed on. {alarm.advice} The last good checkpoint is in "
                f"{self._job.checkpoints_folder}."
            )
        if is_first:
            checkpoints.give_up_after(self._first_bad_step)
        target = decide_on_first_rank(lambda: next(reversed(checkpoints.steps), None), self._machine.device)
        # Skip to the end of the row, wherever in it the failure was detected: bad examples seldom come alone.
        end = min(self._plan.num_steps, math.ceil(alarm.step / LOG_EVERY_STEPS) * LOG_EVERY_STEPS)
        skipped = self._plan.skipping(max(self._first_bad_step, target or 0), end)
        rewind = {"rewound_to": target, "skipped": [dataclasses.asdict(one) for one in skipped]}
        if is_first:
            self._log(alarm, **rewind)
            sequences = sum(one.sequences for one in skipped)
            warn(
                f"pretraining, step {alarm.step:,}: {alarm.message}. It rolls back to "
                f"{'its start' if target is None else f'step {target:,}'} and skips {sequences:,} sequences "
                f"({len(self._rewinds) + 1} of at most {most} times). {alarm.advice}"
            )
        return [*(dict(one) for one in self._rewinds), {"step": alarm.step, **rewind}]


def skipped_in(rewinds: Sequence[Mapping[str, Any]]) -> list[SkippedSequences]:
    """Return the examples that a plan must skip after these rewinds."""
    return [SkippedSequences(**one) for rewind in rewinds for one in rewind["skipped"]]


def read_health(path: Path) -> list[dict[str, Any]]:
    """Read the alarms of a run in order; those that caused a rollback have `rewound_to`."""
    return read_json_lines(path)


def keep_health(path: Path, step: int, rewinds: Sequence[Mapping[str, Any]]) -> None:
    """Keep only the given rewinds and the other alarms up to `step`, from which training resumes."""
    if not path.exists():
        return
    known = [(rewind["step"], rewind["rewound_to"], rewind["skipped"]) for rewind in rewinds]
    kept = []
    for row in read_health(path):
        rewind = (row["step"], row["rewound_to"], row["skipped"]) if "rewound_to" in row else None
        if rewind in known or (rewind is None and row["step"] <= step):
            kept.append(row)
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in kept))


def _monitor(job: PretrainJob, plan: Plan) -> HealthMonitor:
    examples = read_examples_manifest(job.examples_folder)

    def stretch_of(step: int) -> Stretch:
        place = plan.place(step)
        first_step = sum(phase.steps for phase in plan.phases[: place.phase])
        known = {**examples, **examples["lengths"][str(place.max_length)]}
        return Stretch(first_step=first_step, baselines=job.objective.baselines(known))

    return HealthMonitor(
        job.pretrain.health,
        num_warmup_steps=job.schedule.num_warmup_steps,
        objective=job.objective,
        stretch_of=stretch_of,
    )
