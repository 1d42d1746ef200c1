"""First half of a sweep: the trials of each arm's study, scored on dev."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import optuna
import torch
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from bertline.finetuning.finetune import DevCheck, DivergedError, fine_tune
from bertline.foundation.errors import MachineError
from bertline.foundation.progress import say, warn
from bertline.foundation.seeds import seed_for
from bertline.sweep.bench import Bench
from bertline.sweep.config import NoPrunerConfig, SweepConfig, TpeSamplerConfig
from bertline.sweep.job import Arm, PlannedSweep, SweepJob
from bertline.sweep.members import has_died
from bertline.sweep.space import Params, planned_points, space_of_arm, suggest
from bertline.sweep.store import StudyStore
from bertline.sweep.study import (
    CURVE,
    ENDED,
    REASON,
    begin_missing_heartbeats,
    best_trials,
    checks_of,
    has_trials,
    open_study,
    plan_trials,
    requeue_lost,
    slot_of,
    step_of,
    take_over,
    take_trial,
    trial_event,
    try_again,
    try_silent_again,
)
from bertline.sweep.units import UnitTable
from bertline.sweep.workers import Source, Work, Workers


@dataclass(frozen=True, slots=True)
class TrialWork:
    """A trial assigned to a worker."""

    arm: Arm
    trial_id: int
    number: int
    slot: int


_RECOVER_EVERY_S = 5.0


@dataclass(slots=True)
class Studies:
    """Studies of one sweep, one per arm; a `Source` of their waiting trials: those of the first arm, then the next."""

    plan: PlannedSweep
    store: StudyStore
    owner: str
    """Name of this process, which marks its trials."""
    leads: bool = True
    """Whether this process writes events.jsonl."""
    by_arm: dict[Arm, optuna.Study] = field(default_factory=dict)
    _recover_at: float = 0.0
    _num_ended: int = -1

    def trials(self) -> dict[Arm, list[FrozenTrial]]:
        """Return all trials that have ended, by arm."""
        return {arm: study.get_trials(states=ENDED) for arm, study in self.by_arm.items()}

    def sync_events(self) -> None:
        """Append the trials that have ended, here or on other machines, to events.jsonl."""
        if not self.leads:
            return
        events = list(self._events())
        if len(events) != self._num_ended:
            self.store.add_events(self.plan.job.run_folder, events)
            self._num_ended = len(events)

    def _events(self) -> Iterator[dict[str, Any]]:
        for arm, study in self.by_arm.items():
            for trial in study.get_trials(deepcopy=False, states=ENDED):
                yield trial_event(arm, trial, self.plan.job.task.metric)

    def take(self) -> Work | None:
        """See `Source`."""
        self.recover()
        for arm, study in self.by_arm.items():
            trial = take_trial(self.store, study, self.owner)
            if trial is not None:
                return Work(run_trial, TrialWork(arm, trial._trial_id, trial.number, slot_of(trial)))
        return None

    def is_finished(self) -> bool:
        """See `Source`."""
        self.recover()
        self.sync_events()
        return not any(has_trials(study, TrialState.WAITING, TrialState.RUNNING) for study in self.by_arm.values())

    def recover(self) -> None:
        """Queue the trials again whose process or machine has died, if some time has passed since the last look."""
        now = time.monotonic()
        if now < self._recover_at:
            return
        self._recover_at = now + min(_RECOVER_EVERY_S, self.store.grace_s / 2)
        max_retries = self.plan.job.sweep.max_retries
        for study in self.by_arm.values():
            if has_trials(study, TrialState.RUNNING):
                take_over(self.store, study, has_died, max_retries=max_retries)
                try_silent_again(self.store, study, max_retries=max_retries)
            requeue_lost(self.store, study, max_retries=max_retries)

    def give_back_own(self) -> None:
        """Queue the trials again that this process has, whose workers have been stopped."""
        for study in self.by_arm.values():
            take_over(self.store, study, self.owner.__eq__, max_retries=self.plan.job.sweep.max_retries)

    def done(self, work: Work, result: str) -> None:
        """See `Source`."""
        say(f"{self.plan.job.task_name}, {work.argument.arm}, trial {work.argument.number}: {result}")
        self.sync_events()

    def lost(self, work: Work) -> None:
        """See `Source`."""
        study, max_retries = self.by_arm[work.argument.arm], self.plan.job.sweep.max_retries
        try_again(self.store, study, work.argument.trial_id, max_retries=max_retries)
        self.sync_events()


def study_name(job: SweepJob, arm: Arm) -> str:
    """Return the study's name from task, fingerprint of the run and arm: any other configuration or encoder has another
    study."""
    return f"{job.task_name}/{job.run_folder.name}/{arm}"


def workers_matter(sweep: SweepConfig) -> bool:
    """Return whether the result depends on how many workers share the trials, and on when each trial ends."""
    return isinstance(sweep.sampler, TpeSamplerConfig) or not isinstance(sweep.pruner, NoPrunerConfig)


def opened_studies(plan: PlannedSweep, table: UnitTable, *, leads: bool = True) -> Studies:
    """Open the studies, and queue the planned trials that have not been run.

    Args:
        plan: The planned sweep.
        table: Units of the sweep, in the same store.
        leads: Whether this process leads the sweep: else it only takes trials.
    """
    job, store = plan.job, table.store
    studies = Studies(plan, store, table.member, leads)
    with store.reached():
        for arm in plan.arms:
            studies.by_arm[arm] = open_study(store, study_name(job, arm), job.sweep)
        studies.give_back_own()  # an earlier sweep in this process was stopped
        studies.recover()
        for arm, study in studies.by_arm.items() if leads else ():
            study.set_user_attr("workers_matter", workers_matter(job.sweep))
            begin_missing_heartbeats(store, study)
            plan_trials(store, study, planned_points(job.sweep, job.task, arm))
        studies.sync_events()
    return studies


def run_trials(studies: Studies, workers: Workers, *, filler: Source) -> dict[Arm, list[Params]]:
    """Run the planned trials of all arms that have not run yet, and choose the best points of each arm on dev.

    Args:
        studies: Studies with the planned trials.
        workers: Workers that run them.
        filler: See `Workers`.

    Returns:
        The best points of each arm; an arm without a finished trial is left out.

    Raises:
        MachineError: No trial of the encoder finished, or the store cannot be reached.
    """
    job = studies.plan.job
    with studies.store.reached():
        workers.work_through(studies, filler=filler)
        studies.sync_events()
        chosen: dict[Arm, list[Params]] = {}
        for arm, study in studies.by_arm.items():
            if not space_of_arm(job.sweep, job.task, arm):
                chosen[arm] = [{}]
                continue
            best = best_trials(study, job.sweep.num_best)
            if not best:
                said = f"{job.task_name}: no trial of {arm} finished (see the messages above)"
                if arm == "encoder":
                    raise MachineError(
                        f"{said}. Run the stage again, with lower rates in sweep.space if they diverged."
                    )
                warn(f"{said}; it is left out")
                continue
            chosen[arm] = [dict(trial.params) for trial in best]
            point = json.dumps(best[0].params)
            say(f"{job.task_name}, {arm}: best dev {job.task.metric} {best[0].value:.3f} with {point}")
    return chosen


def run_trial(bench: Bench, work: TrialWork) -> str:
    """Run one trial, report it to its study, and return the progress message.

    Raises:
        MachineError: The store cannot be reached.
    """
    job, store = bench.job, bench.store
    with store.reached():
        draw = f"{work.slot}/{work.number}"
        study = open_study(store, study_name(job, work.arm), job.sweep, draw=draw)
        study.get_trials(deepcopy=False)  # Optuna's cache must have seen a trial before it can be written to
        trial = optuna.Trial(study, work.trial_id)
        with store.beating(lambda: store.storage.record_heartbeat(work.trial_id)):
            try:
                return _run(bench, work.arm, study, trial)
            except UpdateFinishedTrialError:
                # This machine was silent for so long (asleep, disconnected) that another one failed the trial.
                return "came too late, and is tried again elsewhere"


def _run(bench: Bench, arm: Arm, study: optuna.Study, trial: optuna.Trial) -> str:
    job, metric = bench.job, bench.job.task.metric
    params = suggest(trial, space_of_arm(job.sweep, job.task, arm))
    point = json.dumps(params)
    started = time.monotonic()
    # The seed is a function of the point: the same point gives the same score in any study, order or process.
    seed = seed_for(job.sweep.seed, "trial", json.dumps(params, sort_keys=True))
    run = bench.run(arm, params, num_train_rows=job.task.num_train_rows, seed=seed, checks=checks_of(job.sweep.pruner))
    curve: list[list[float]] = []

    def end(key: str, value: Any, state: TrialState | None = None, score: float | None = None) -> None:
        trial.set_user_attr(key, value)
        study.tell(trial, score, state=state, skip_if_finished=True)

    try:
        score = fine_tune(run, on_check=report_and_prune(trial, job.sweep, metric, curve)).dev_scores[metric]
    except optuna.TrialPruned:
        end(CURVE, curve, TrialState.PRUNED)
        return f"pruned after {curve[-1][0]:.0%} of its schedule, at {curve[-1][1]:.3f} on dev ({point})"
    except (DivergedError, torch.OutOfMemoryError) as error:
        # A retry would fail too, so the point gets no score, and the other trials continue.
        reason = str(error).partition("\n")[0]
        end(REASON, reason, TrialState.FAIL)
        warn(f"{job.task_name}, {arm}, trial {trial.number}: {reason}")
        return f"failed ({point})"
    except Exception as error:
        # Its message may have the user's text, which stays out of the records that a server gets.
        end(REASON, f"It ended with a {type(error).__name__}, see the log of the sweep.", TrialState.FAIL)
        raise
    end(CURVE, curve, score=score)  # without a state: a score that is not a number makes the trial a failed one
    return f"{score:.3f} on dev in {time.monotonic() - started:.0f} s ({point})"


def report_and_prune(
    trial: optuna.Trial, sweep: SweepConfig, metric: str, curve: list[list[float]]
) -> Callable[[DevCheck], None]:
    """Return a callback that reports dev scores to the study, and stops the trial if the pruner decides so.

    The callback of optuna-integration imports another Lightning package than the one used here.

    Args:
        trial: The running trial.
        sweep: Configuration with the pruner.
        metric: Metric to report.
        curve: List to which `[completed fraction of the schedule, score]` of each dev check is appended.
    """

    def on_check(check: DevCheck) -> None:
        curve.append([check.share, check.scores[metric]])
        if (step := step_of(sweep.pruner, check)) is not None:
            trial.report(check.scores[metric], step)
            # At the end of its schedule a trial is finished, whatever its score.
            if check.share < 1 and trial.should_prune():
                raise optuna.TrialPruned

    return on_check
