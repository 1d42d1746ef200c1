"""Studies that outlive their processes: each planned trial is taken once, and retried if its process dies.

A planned point is a *slot*; a retried trial keeps its slot. The states are Optuna's own and change in the database by
compare-and-set, so that only one of several processes, on several machines, takes a trial.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, assert_never
from uuid import uuid4

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from bertline.finetuning.finetune import DevCheck
from bertline.foundation.formats import percent
from bertline.foundation.progress import warn
from bertline.foundation.seeds import seed_for
from bertline.sweep.config import (
    GridSamplerConfig,
    MedianPrunerConfig,
    NoPrunerConfig,
    RandomSamplerConfig,
    SuccessiveHalvingPrunerConfig,
    SweepConfig,
    TpeSamplerConfig,
)
from bertline.sweep.space import Params
from bertline.sweep.store import StudyStore

# Optuna counts resources in whole steps. The first rung is at this step, so that dev checks between rungs (at the ends
# of epochs) have steps of their own.
_FIRST_RUNG = 1000

PrunerConfig = NoPrunerConfig | MedianPrunerConfig | SuccessiveHalvingPrunerConfig


def new_sampler(config: SweepConfig, seed: int) -> optuna.samplers.BaseSampler:
    """Return the sampler for the hyperparameters that the plan leaves open."""
    match config.sampler:
        case GridSamplerConfig() | RandomSamplerConfig():
            # All their points are planned, so this sampler draws nothing.
            return optuna.samplers.RandomSampler(seed=seed)
        case TpeSamplerConfig(num_startup_trials=num_startup_trials):
            # constant_liar: parallel workers do not all sample around the same point.
            return optuna.samplers.TPESampler(seed=seed, n_startup_trials=num_startup_trials, constant_liar=True)
        case _:
            assert_never(config.sampler)


def new_pruner(config: PrunerConfig) -> optuna.pruners.BasePruner:
    """Return the pruner, to which trials report the steps of `step_of`."""
    match config:
        case NoPrunerConfig():
            return optuna.pruners.NopPruner()
        case MedianPrunerConfig():
            # Optuna prunes from step n_warmup_steps on, and epochs count from 1.
            return optuna.pruners.MedianPruner(
                n_startup_trials=config.num_startup_trials, n_warmup_steps=config.num_warmup_epochs + 1
            )
        case SuccessiveHalvingPrunerConfig(reduction_factor=factor):
            return optuna.pruners.SuccessiveHalvingPruner(min_resource=_FIRST_RUNG, reduction_factor=factor)
        case _:
            assert_never(config)


def checks_of(config: PrunerConfig) -> tuple[float, ...]:
    """Return the fractions of a trial's schedule at which its pruner needs a dev score, besides the ends of epochs.

    >>> checks_of(SuccessiveHalvingPrunerConfig(kind="successive_halving", reduction_factor=2, num_rungs=3))
    (0.125, 0.25, 0.5)
    """
    if not isinstance(config, SuccessiveHalvingPrunerConfig):
        return ()
    return tuple(config.reduction_factor**-rung for rung in range(config.num_rungs, 0, -1))


def step_of(config: PrunerConfig, check: DevCheck) -> int | None:
    """Return the step at which a dev check is reported; None if it is not reported.

    Successive halving counts fractions of the trial's own schedule, so that trials of different lengths are compared
    at the same rungs; the other pruners count epochs.
    """
    if isinstance(config, SuccessiveHalvingPrunerConfig):
        return round(check.share * _FIRST_RUNG * config.reduction_factor**config.num_rungs)
    return check.epoch if check.at_epoch_end else None


ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
CURVE = "curve"
REASON = "reason"
_SLOT, _POINT, _TRIES, _OWNER = "slot", "point", "tries", "owner"
_CLAIM = "claim"
"""Says which call of `take_trial` took the trial."""
_LOST, _RETRY_OF = "lost", "retry_of"
"""Of a trial whose process died: whether that counts as a try; of the trial that replaces it: its number."""
SILENT = "Its machine was not heard of for a minute."


def open_study(store: StudyStore, name: str, config: SweepConfig, *, draw: str = "") -> optuna.Study:
    """Open the study of one arm, or create it.

    Args:
        store: Database of the studies.
        name: Name of the study.
        config: Configuration of the sampler and the pruner.
        draw: Key of the sampler's draws; its seed is a function of the sweep's seed, the arm and this key.
    """
    seed = seed_for(config.seed, "sampler", name.rpartition("/")[2], draw) % 2**32
    return optuna.create_study(
        study_name=name,
        storage=store.storage,
        sampler=new_sampler(config, seed),
        pruner=new_pruner(config.pruner),
        direction="maximize",
        load_if_exists=True,
    )


def plan_trials(store: StudyStore, study: optuna.Study, points: list[Params]) -> None:
    """Queue each planned point that has no trial: at first all points, later those whose trial failed."""

    def plan() -> None:
        taken = {slot_of(trial) for trial in study.get_trials(deepcopy=False) if trial.state != TrialState.FAIL}
        for slot, point in enumerate(points):
            if slot not in taken:
                study.enqueue_trial(point, user_attrs={_SLOT: slot, _POINT: point, _TRIES: 0})

    store.exclusively(study.study_name, plan)


def take_trial(store: StudyStore, study: optuna.Study, owner: str) -> FrozenTrial | None:
    """Mark a waiting trial as running for this owner; None if no trial is waiting.

    Without a pruner, which compares trials with earlier ones, the longest are taken first, so that at the end no worker
    runs a long one while the others are idle. Retried trials then come last.
    """
    if not has_trials(study, TrialState.WAITING):
        return None
    claim = uuid4().hex

    def take() -> FrozenTrial | None:
        found = study.get_trials(deepcopy=False, states=(TrialState.WAITING, TrialState.RUNNING))
        waiting = [trial for trial in found if trial.state == TrialState.WAITING]
        # If the server was lost after an earlier attempt, its trial is running already.
        mine = [trial for trial in found if trial not in waiting and trial.user_attrs.get(_CLAIM) == claim]
        if mine:
            return mine[0]
        if isinstance(study.pruner, optuna.pruners.NopPruner):
            waiting.sort(key=_tries_and_length)
        for trial in waiting:
            # Optuna has no public way to get a trial's id; tests/contracts checks these names.
            store.storage.set_trial_user_attr(trial._trial_id, _OWNER, owner)
            store.storage.set_trial_user_attr(trial._trial_id, _CLAIM, claim)
            store.storage.record_heartbeat(trial._trial_id)
            if store.storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING):
                return trial
        return None

    # The lock is needed for SQLite, which does not keep two processes from changing the state of one trial.
    return store.exclusively(study.study_name, take)


def _tries_and_length(trial: FrozenTrial) -> tuple[int, float]:
    return trial.user_attrs.get(_TRIES, 0), -trial.user_attrs.get(_POINT, {}).get("num_epochs", 0)


def try_again(
    store: StudyStore,
    study: optuna.Study,
    trial_id: int,
    *,
    max_retries: int,
    reason: str = "Its process died.",
    its_own_fault: bool = True,
) -> None:
    """Fail a trial whose process died, unless it had finished, and queue its point again.

    Args:
        store: Database of the study.
        study: Study of the trial.
        trial_id: Id of the trial; its present state is read from the database.
        max_retries: Maximum number of retries, after which the trial stays failed.
        reason: Why the trial fails, as a sentence.
        its_own_fault: Whether this counts as a retry; False if the whole sweep was stopped.
    """
    try:
        store.storage.set_trial_user_attr(trial_id, REASON, reason)
        store.storage.set_trial_user_attr(trial_id, _LOST, its_own_fault)
        store.storage.set_trial_state_values(trial_id, TrialState.FAIL)
    except UpdateFinishedTrialError:
        return
    requeue_lost(store, study, max_retries=max_retries)
    trial = store.storage.get_trial(trial_id)
    if (tries := _tries_of_the_next(trial)) > max_retries:
        warn(f"{study.study_name}, trial {trial.number}: given up after {tries} tries (sweep.max_retries)")


def requeue_lost(store: StudyStore, study: optuna.Study, *, max_retries: int) -> None:
    """Queue the points of trials whose process died again, unless they are or have no retries left.

    Whoever fails a trial may die before it has queued the next, so any process may do so later.
    """

    def requeue() -> None:
        for trial in _lost_trials(study, max_retries):
            point = trial.user_attrs.get(_POINT, {})
            attributes = {_SLOT: slot_of(trial), _POINT: point, _TRIES: _tries_of_the_next(trial)}
            # Values that a sampler has drawn are kept: the retry has the same point.
            study.enqueue_trial({**point, **trial.params}, user_attrs={**attributes, _RETRY_OF: trial.number})

    if _lost_trials(study, max_retries):
        store.exclusively(study.study_name, requeue)


def _lost_trials(study: optuna.Study, max_retries: int) -> list[FrozenTrial]:
    """Return the lost trials that are to be queued again, and are not yet."""
    trials = study.get_trials(deepcopy=False)
    retried = {trial.user_attrs.get(_RETRY_OF) for trial in trials}
    # A slot that has another trial was planned again when the stage was started again.
    planned = {slot_of(trial) for trial in trials if trial.state != TrialState.FAIL}
    return [
        trial
        for trial in trials
        if trial.state == TrialState.FAIL
        and _LOST in trial.user_attrs
        and trial.number not in retried
        and slot_of(trial) not in planned
        and _tries_of_the_next(trial) <= max_retries
    ]


def _tries_of_the_next(lost: FrozenTrial) -> int:
    return int(lost.user_attrs.get(_TRIES, 0)) + int(lost.user_attrs[_LOST])


def take_over(store: StudyStore, study: optuna.Study, is_gone: Callable[[str], bool], *, max_retries: int) -> None:
    """Requeue the trials whose owner is known to be gone; of another machine, the heartbeat stops if it dies."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if (owner := trial.user_attrs.get(_OWNER)) is not None and is_gone(owner):
            reason = "The sweep was stopped while it ran."
            try_again(store, study, trial._trial_id, max_retries=max_retries, reason=reason, its_own_fault=False)


def begin_missing_heartbeats(store: StudyStore, study: optuna.Study) -> None:
    """Record a heartbeat for running trials without an owner.

    Such a trial, of an older version and killed at the wrong moment, may have no heartbeat either. Trials are failed
    when their heartbeat stops, so it would count as running forever.
    """
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if _OWNER not in trial.user_attrs:
            store.storage.record_heartbeat(trial._trial_id)


def try_silent_again(store: StudyStore, study: optuna.Study, *, max_retries: int) -> None:
    """Requeue the trials whose machine has not been heard of."""
    for trial_id in store.silent_trials(study):
        number = store.storage.get_trial(trial_id).number
        warn(f"{study.study_name}, trial {number}: not heard of for a minute; it is tried again")
        try_again(store, study, trial_id, max_retries=max_retries, reason=SILENT)


def has_trials(study: optuna.Study, *states: TrialState) -> bool:
    """Return whether any trial is in one of these states."""
    return bool(study.get_trials(deepcopy=False, states=states))


def slot_of(trial: FrozenTrial) -> int:
    """Return the index of a trial's point in the plan."""
    return int(trial.user_attrs[_SLOT])


def best_trials(study: optuna.Study, num_best: int) -> list[FrozenTrial]:
    """Return the finished trials with the highest scores, best first, each point once; ties keep the order of the plan.

    Pruned trials are not considered.
    """
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    finished.sort(key=lambda trial: (-trial.values[0], slot_of(trial)))
    by_point: dict[str, FrozenTrial] = {}
    for trial in finished:
        by_point.setdefault(json.dumps(trial.params, sort_keys=True), trial)
    return list(by_point.values())[:num_best]


def curve_of(trial: FrozenTrial) -> list[list[float]]:
    """Return the dev scores by completed fraction of the schedule: `[[share, score], ...]`."""
    return trial.user_attrs.get(CURVE, [])


def last_dev(trial: FrozenTrial) -> float | None:
    """Return the score of a finished trial, else the last dev score of the trial; None if it has none."""
    if trial.state == TrialState.COMPLETE:
        return trial.value
    curve = curve_of(trial)
    return curve[-1][1] if curve else None


def reason_of(trial: FrozenTrial) -> str | None:
    """Return in a sentence why a trial failed or was stopped early; None for a finished one."""
    if trial.state == TrialState.PRUNED and (curve := curve_of(trial)):
        share, score = curve[-1]
        return f"Stopped early, after {percent(share)} of its schedule, with a score of {score:.3f} on dev."
    return str(trial.user_attrs.get(REASON, SILENT)) if trial.state == TrialState.FAIL else None


def trial_event(arm: str, trial: FrozenTrial, metric: str) -> dict[str, Any]:
    """Return the content of the line of events.jsonl for a trial that has ended."""
    dev = last_dev(trial)
    return {
        "arm": arm,
        "kind": "trial",
        "number": trial.number,
        "state": trial.state.name,
        "reason": reason_of(trial),
        "params": trial.params,
        "metrics": {f"dev/{metric}": dev} if dev is not None else {},
        "curve": curve_of(trial),
        "time_s": trial.duration.total_seconds() if trial.duration is not None else 0.0,
    }
