"""Studies that outlive their processes: planned trials, each taken once, and tried again when its process dies.

A planned point is a *slot*; a trial that is tried again keeps its slot. The states are Optuna's own, and they change in
the database by comparing and setting, so that of several processes, on several machines, one takes a trial.
"""

from __future__ import annotations

import json
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from bertline.foundation.progress import warn
from bertline.foundation.seeds import seed_for
from bertline.sweep.config import SweepConfig
from bertline.sweep.pruning import new_pruner, new_sampler
from bertline.sweep.space import Params
from bertline.sweep.store import StudyStore

ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
CURVE = "curve"
_SLOT, _POINT, _TRIES, _OWNER = "slot", "point", "tries", "owner"


def open_study(store: StudyStore, name: str, config: SweepConfig, *, draw: str = "") -> optuna.Study:
    """Open the study of one arm, or make it.

    Args:
        store: Of all studies.
        name: Of the study.
        config: Sampler and pruner.
        draw: What the sampler draws for; its random numbers are a function of the sweep's seed, the study and this.
    """
    seed = seed_for(config.seed, "sampler", name.rpartition("/")[2], draw) % 2**32
    return store.study(name, new_sampler(config, seed), new_pruner(config.pruner))


def plan_trials(store: StudyStore, study: optuna.Study, points: list[Params]) -> None:
    """Queue each planned point that has no trial: all of them at first, and later those whose trial failed."""
    with store.exclusive(study.study_name):
        taken = {slot_of(trial) for trial in study.get_trials(deepcopy=False) if trial.state != TrialState.FAIL}
        for slot, point in enumerate(points):
            if slot not in taken:
                study.enqueue_trial(point, user_attrs={_SLOT: slot, _POINT: point, _TRIES: 0})


def take_trial(store: StudyStore, study: optuna.Study, owner: str) -> FrozenTrial | None:
    """Make a waiting trial a running one of this owner; None where none waits.

    Without a pruner, which judges trials by earlier ones, the longest are taken first, so that no worker is left alone
    with one at the end; those that are tried again come after the others.
    """
    if not has_trials(study, TrialState.WAITING):
        return None
    # SQLite alone needs the lock: it does not keep two processes from changing the state of one trial.
    with store.exclusive(study.study_name):
        waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if isinstance(study.pruner, optuna.pruners.NopPruner):
            waiting = sorted(waiting, key=_tries_and_length)
        for trial in waiting:
            # Optuna has no public way to a trial's id; tests/contracts holds these names.
            if store.storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING):
                store.storage.record_heartbeat(trial._trial_id)
                store.storage.set_trial_user_attr(trial._trial_id, _OWNER, owner)
                return trial
    return None


def _tries_and_length(trial: FrozenTrial) -> tuple[int, float]:
    return trial.user_attrs.get(_TRIES, 0), -trial.user_attrs.get(_POINT, {}).get("num_epochs", 0)


def try_again(
    store: StudyStore, study: optuna.Study, trial: FrozenTrial, *, max_retries: int, its_own_fault: bool = True
) -> None:
    """Fail a trial whose process is gone, unless it had finished, and queue its point again.

    Args:
        store: Of the study.
        study: Of the trial.
        trial: As far as it is known; what the database says counts.
        max_retries: A trial that took its process with it more often stays failed.
        its_own_fault: Whether this counts among the retries: not where the whole sweep was stopped.
    """
    trial = store.storage.get_trial(trial._trial_id)
    try:
        store.storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
    except UpdateFinishedTrialError:
        return
    requeue(study, trial, max_retries=max_retries, its_own_fault=its_own_fault)


def requeue(study: optuna.Study, trial: FrozenTrial, *, max_retries: int, its_own_fault: bool = True) -> None:
    """Queue the point of a trial that was failed."""
    tries = int(trial.user_attrs.get(_TRIES, 0)) + int(its_own_fault)
    if tries > max_retries:
        warn(f"{study.study_name}, trial {trial.number}: given up after {tries} tries (sweep.max_retries)")
        return
    point = trial.user_attrs.get(_POINT, {})
    # What a sampler has drawn for it stays: the point is the trial.
    study.enqueue_trial({**point, **trial.params}, user_attrs={_SLOT: slot_of(trial), _POINT: point, _TRIES: tries})


def take_over(store: StudyStore, study: optuna.Study, owner: str, *, max_retries: int) -> None:
    """Queue again what an earlier process of this owner left running when it was killed.

    One that was killed between taking a trial and signing it leaves a trial without an owner, and perhaps without a
    heartbeat, which Optuna takes for running for ever: it looks only for heartbeats that have stopped. It gets one.
    """
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        match trial.user_attrs.get(_OWNER):
            case None:
                store.storage.record_heartbeat(trial._trial_id)
            case known if known == owner:
                try_again(store, study, trial, max_retries=max_retries, its_own_fault=False)
            case _:
                pass  # another machine's; if that one dies, its heartbeat stops


def has_trials(study: optuna.Study, *states: TrialState) -> bool:
    """Whether any trial is in one of these states."""
    return bool(study.get_trials(deepcopy=False, states=states))


def slot_of(trial: FrozenTrial) -> int:
    """The place of a trial in the plan."""
    return int(trial.user_attrs[_SLOT])


def best_trials(study: optuna.Study, num_best: int) -> list[FrozenTrial]:
    """The finished trials with the highest scores, best first, no point twice; of equal ones the first in the plan.

    Pruned trials do not stand.
    """
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    finished.sort(key=lambda trial: (-trial.values[0], slot_of(trial)))
    by_point: dict[str, FrozenTrial] = {}
    for trial in finished:
        by_point.setdefault(json.dumps(trial.params, sort_keys=True), trial)
    return list(by_point.values())[:num_best]


def curve_of(trial: FrozenTrial) -> list[list[float]]:
    """Dev scores by the share of the schedule that was behind: `[[share, score], ...]`."""
    return trial.user_attrs.get(CURVE, [])


def last_dev(trial: FrozenTrial) -> float | None:
    """The score of a finished trial, or the last that another one saw; None where it saw none."""
    if trial.state == TrialState.COMPLETE:
        return trial.value
    curve = curve_of(trial)
    return curve[-1][1] if curve else None


def trial_event(arm: str, trial: FrozenTrial, metric: str) -> dict[str, Any]:
    """A trial that has ended, as a line of events.jsonl."""
    dev = last_dev(trial)
    return {
        "arm": arm,
        "kind": "trial",
        "number": trial.number,
        "state": trial.state.name,
        "params": trial.params,
        "metrics": {f"dev/{metric}": dev} if dev is not None else {},
        "curve": curve_of(trial),
        "time_s": trial.duration.total_seconds() if trial.duration is not None else 0.0,
    }
