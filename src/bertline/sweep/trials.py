"""The first half of a sweep: the trials of each arm's study, judged on dev."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import optuna

from bertline.finetuning.finetune import DevCheck, fine_tune
from bertline.foundation.errors import MachineError
from bertline.foundation.progress import say
from bertline.foundation.seeds import seed_for
from bertline.sweep.bench import Bench
from bertline.sweep.events import EventsLog
from bertline.sweep.job import Arm, PlannedSweep
from bertline.sweep.space import Params, planned_points, space_of, suggest
from bertline.sweep.study import (
    ENDED,
    STEPS,
    best_trials,
    give_running_trials_a_heartbeat,
    is_finished,
    open_study,
    plan_trials,
    run_waiting_trials,
    trial_event,
)
from bertline.sweep.workers import Workers

_LOOK_AGAIN_S = 1.0


def run_trials(plan: PlannedSweep, workers: Workers) -> dict[Arm, list[Params]]:
    """Run all planned trials of all arms, or what is left of them, and choose the best points of each arm on dev.

    Raises:
        MachineError: Not one trial of an arm finished.
    """
    job = plan.job
    studies = {arm: open_study(job.run_folder, arm, job.sweep) for arm in plan.arms}
    for study in studies.values():
        give_running_trials_a_heartbeat(study)
        plan_trials(study, planned_points(job.sweep, job.task))
    sync_trial_events(plan)
    while not all(is_finished(study) for study in studies.values()):
        workers.run_everywhere(work_on_trials)
        # What still runs now belongs to a process that was killed; its heartbeat runs out in a few seconds.
        if not all(is_finished(study) for study in studies.values()):
            time.sleep(_LOOK_AGAIN_S)
    sync_trial_events(plan)
    chosen: dict[Arm, list[Params]] = {}
    for arm, study in studies.items():
        best = best_trials(study, job.sweep.num_best)
        if not best:
            raise MachineError(
                f"{job.task_name}: no trial of {arm} finished. See the messages above, and run the stage again."
            )
        chosen[arm] = [dict(trial.params) for trial in best]
        say(f"{job.task_name}, {arm}: best dev {job.task.metric} {best[0].value:.3f} with {json.dumps(best[0].params)}")
    return chosen


def work_on_trials(bench: Bench, worker: int) -> None:
    """What one worker does: take trials of the first arm until none is left, then of the next."""
    job = bench.job
    for arm in bench.plan.arms:
        study = open_study(job.run_folder, arm, job.sweep, worker=worker)
        run_waiting_trials(
            study,
            job.run_folder / ".claim.lock",
            _objective(bench, arm),
            after=lambda: sync_trial_events(bench.plan),
        )


def sync_trial_events(plan: PlannedSweep) -> None:
    """Bring events.jsonl up to the studies."""
    EventsLog(plan.job.run_folder / "events.jsonl").add_missing(_events(plan))


def _events(plan: PlannedSweep) -> Iterator[dict[str, Any]]:
    for arm in plan.arms:
        study = open_study(plan.job.run_folder, arm, plan.job.sweep)
        for trial in study.get_trials(deepcopy=False, states=ENDED):
            yield trial_event(arm, trial, plan.job.task.metric)


def _objective(bench: Bench, arm: Arm) -> Callable[[optuna.Trial], float]:
    job = bench.job
    space = space_of(job.sweep, job.task)

    def objective(trial: optuna.Trial) -> float:
        params = suggest(trial, space)
        started = time.monotonic()
        # The seed is a function of the point: the same point gives the same score in any study, order or process.
        seed = seed_for(job.sweep.seed, "trial", json.dumps(params, sort_keys=True))
        run = bench.run(arm, params, num_train_rows=job.task.num_train_rows, seed=seed)
        report = report_and_prune(trial, job.task.metric)
        try:
            score = fine_tune(run, on_check=report).dev_scores[job.task.metric]
        except optuna.TrialPruned:
            say(f"{job.task_name}, {arm}, trial {trial.number}: pruned ({json.dumps(params)})")
            raise
        took = time.monotonic() - started
        say(f"{job.task_name}, {arm}, trial {trial.number}: {score:.3f} on dev in {took:.0f} s ({json.dumps(params)})")
        return score

    return objective


def report_and_prune(trial: optuna.Trial, metric: str) -> Callable[[DevCheck], None]:
    """A callback that tells the study the dev score of each epoch, and ends a trial that the pruner gives up.

    (The callback of optuna-integration imports another Lightning package than the one used here.)
    """

    def on_check(check: DevCheck) -> None:
        trial.report(check.scores[metric], round(check.share * STEPS))
        if trial.should_prune():
            raise optuna.TrialPruned

    return on_check
