"""Monitoring of a training: logs alarms; rolls back to the last good checkpoint on divergence.

A rollback is a restart within the process: the newest checkpoint from before the failure is loaded as after a kill, and
the examples on which training failed are skipped. Every later checkpoint records which examples were skipped.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import append_lines, read_json_lines, write_atomically
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.progress import warn
from bertline.pretraining.data import read_examples_manifest
from bertline.pretraining.health import Alarm, HealthMonitor, Stretch
from bertline.pretraining.interval import LOG_EVERY_STEPS
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.module import PretrainingModule
from bertline.pretraining.plan import Plan, SkippedSequences
from bertline.training.checkpoints import CheckpointFolder
from bertline.training.devices import Machine, sum_over_ranks
from bertline.training.groupwise import all_finite
from bertline.training.process_group import decide_on_first_rank


class TrainingDivergedError(BertlineError):
    """Training failed again after the allowed number of rollbacks."""


class DivergenceGuard:
    """Passes every row of metrics to the monitor on the first rank; all ranks make the same decision.

    Args:
        job: Job of the run.
        plan: Steps of the run.
        machine: Device and ranks.
        rewinds: Rewinds of this run so far, as returned by `roll_back`.
    """

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
                self._raise(alarm)
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

    def _raise(self, alarm: Alarm) -> None:
        warn(f"pretraining, step {alarm.step:,}: {alarm.message}. {alarm.advice}")
        self._log(alarm)

    def _log(self, alarm: Alarm, **rewind: Any) -> None:
        append_lines(self._job.health_path, [json.dumps({**dataclasses.asdict(alarm), **rewind})])

    def roll_back(self, alarm: Alarm, checkpoints: CheckpointFolder) -> list[dict[str, Any]]:
        """Discard the steps of a failure: delete the checkpoints that they may have corrupted and choose what to skip.

        Called on all ranks. The next start finds the checkpoint to resume from, or starts the run over.

        Args:
            alarm: Failure to recover from.
            checkpoints: Checkpoints of the run.

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
