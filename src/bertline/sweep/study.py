"""Optuna studies that outlive their processes: one a arm, in SQLite, with planned trials and a heartbeat."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_never

import optuna
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState

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
from bertline.sweep.events import locked
from bertline.sweep.space import Params

# A trial whose process has been silent for so long is taken for dead and tried again.
_HEARTBEAT_S, _GRACE_S = 5, 20
_SQLITE_WAIT_S = 60
_SLOT = "slot"
STEPS = 10_000
ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)

optuna.logging.set_verbosity(optuna.logging.WARNING)


def open_study(folder: Path, arm: str, config: SweepConfig, *, worker: int = 0) -> optuna.Study:
    """Open the study of one arm, or make it.

    Args:
        folder: The run folder; both arms share its `study.db`.
        arm: Name of the study.
        config: Sampler, pruner and retries.
        worker: Workers of one study draw from samplers with different seeds, lest TPE proposes the same point twice.
    """
    with warnings.catch_warnings():
        # Heartbeats and retries are marked experimental; `tests/contracts` and the kill test hold them.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        storage = RDBStorage(
            f"sqlite:///{folder.resolve() / 'study.db'}",
            engine_kwargs={"connect_args": {"timeout": _SQLITE_WAIT_S}},
            heartbeat_interval=_HEARTBEAT_S,
            grace_period=_GRACE_S,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=config.max_retries),
        )
        return optuna.create_study(
            study_name=arm,
            storage=storage,
            sampler=_sampler(config, seed_for(config.seed, "sampler", arm, worker) % 2**32),
            pruner=_pruner(config),
            direction="maximize",
            load_if_exists=True,
        )


def give_running_trials_a_heartbeat(study: optuna.Study) -> None:
    """Make every trial that runs, or seems to, one whose silence is noticed.

    A process that is killed after it has taken a trial and before its first heartbeat leaves a trial that Optuna takes
    for running for ever: it looks only for heartbeats that have stopped.
    """
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        # Optuna has no public way; tests/contracts holds these names.
        study._storage.record_heartbeat(trial._trial_id)


def plan_trials(study: optuna.Study, points: list[Params]) -> None:
    """Queue each planned point that has no trial: all of them at first, and later those whose trial failed.

    A point is a slot; a trial that is tried again keeps its slot.
    """
    taken = {slot_of(trial) for trial in study.get_trials(deepcopy=False) if trial.state != TrialState.FAIL}
    for slot, point in enumerate(points):
        if slot not in taken:
            study.enqueue_trial(point, user_attrs={_SLOT: slot})


def slot_of(trial: FrozenTrial) -> int:
    """The place of a trial in the plan."""
    return int(trial.user_attrs[_SLOT])


def run_waiting_trials(
    study: optuna.Study, lock: Path, objective: Callable[[optuna.Trial], float], *, after: Callable[[], None]
) -> None:
    """Take queued trials and run them until none is left. Several processes may do so at once.

    Args:
        study: With planned trials.
        lock: A file that is locked while a trial is taken: between seeing that one waits and taking it, nobody else
            may take it, or Optuna would make up a trial that was not planned.
        objective: Returns the score; may prune by raising.
        after: Called after each trial.
    """
    while True:
        holding = locked(lock)
        holding.__enter__()
        taken = False

        def run(trial: optuna.Trial) -> float:
            nonlocal taken
            taken = True
            holding.__exit__(None, None, None)  # noqa: B023 - called within this round only
            return objective(trial)

        try:
            _retry_dead(study)
            if not _has(study, TrialState.WAITING):
                return
            study.optimize(run, n_trials=1)
        finally:
            if not taken:
                holding.__exit__(None, None, None)
        after()


def is_finished(study: optuna.Study) -> bool:
    """Whether nothing waits or runs. A trial of a dead process runs until its heartbeat is found to have stopped."""
    _retry_dead(study)
    return not _has(study, TrialState.WAITING, TrialState.RUNNING)


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


def trial_event(arm: str, trial: FrozenTrial, metric: str) -> dict[str, Any]:
    """A trial that has ended, as a line of events.jsonl."""
    curve = curve_of(trial)
    return {
        "arm": arm,
        "kind": "trial",
        "number": trial.number,
        "state": trial.state.name,
        "params": trial.params,
        "metrics": {f"dev/{metric}": curve[-1][1]} if curve else {},
        "curve": curve,
        "time_s": trial.duration.total_seconds() if trial.duration is not None else 0.0,
    }


def curve_of(trial: FrozenTrial) -> list[list[float]]:
    """Dev scores by the share of the schedule that was behind: `[[share, score], ...]`."""
    return [[step / STEPS, value] for step, value in sorted(trial.intermediate_values.items())]


def last_dev(trial: FrozenTrial) -> float | None:
    """The score of a finished trial, or the last that another one saw; None where it saw none."""
    if trial.value is not None:
        return trial.value
    curve = curve_of(trial)
    return curve[-1][1] if curve else None


def _has(study: optuna.Study, *states: TrialState) -> bool:
    return bool(study.get_trials(deepcopy=False, states=states))


def _retry_dead(study: optuna.Study) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.storages.fail_stale_trials(study)


def _sampler(config: SweepConfig, seed: int) -> optuna.samplers.BaseSampler:
    match config.sampler:
        case GridSamplerConfig() | RandomSamplerConfig():
            # Their points are planned; the sampler is never asked.
            return optuna.samplers.RandomSampler(seed=seed)
        case TpeSamplerConfig(num_startup_trials=num_startup_trials):
            # constant_liar: workers side by side do not crowd around one point.
            return optuna.samplers.TPESampler(seed=seed, n_startup_trials=num_startup_trials, constant_liar=True)
        case _:
            assert_never(config.sampler)


def _pruner(config: SweepConfig) -> optuna.pruners.BasePruner:
    match config.pruner:
        case NoPrunerConfig():
            return optuna.pruners.NopPruner()
        case MedianPrunerConfig():
            # Optuna judges from step n_warmup_steps on, and epochs count from 1.
            return optuna.pruners.MedianPruner(
                n_startup_trials=config.pruner.num_startup_trials, n_warmup_steps=config.pruner.num_warmup_epochs + 1
            )
        case SuccessiveHalvingPrunerConfig():
            raise NotImplementedError
        case _:
            assert_never(config.pruner)
