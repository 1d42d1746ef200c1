"""Studies that outlive their processes."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from omegaconf import OmegaConf
from optuna.trial import TrialState

from bertline.sweep.config import MedianPrunerConfig, TpeSamplerConfig
from bertline.sweep.store import StudyStore
from bertline.sweep.study import (
    best_trials,
    has_trials,
    open_study,
    plan_trials,
    slot_of,
    take_over,
    take_trial,
    try_again,
)

FILES = sorted((Path(__file__).parents[3] / "conf" / "sweep").glob("*.yaml"))
SHIPPED = [path for path in FILES if "max_retries" in OmegaConf.load(path)]  # docs_tiny has that of docs_long
POINTS = [{"x": value} for value in (1, 2, 3, 4)]
ME, ANOTHER = "this run folder", "that of another machine"


def by_x(trial):
    return float(trial.suggest_categorical("x", [1, 2, 3, 4]))


def run_all(store, study, objective):
    """What a worker does, without the worker."""
    while (taken := take_trial(store, study, ME)) is not None:
        study.get_trials(deepcopy=False)
        trial = optuna.Trial(study, taken._trial_id)
        try:
            study.tell(trial, objective(trial))
        except optuna.TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)


def states(study):
    return [trial.state.name for trial in study.trials]


def test_planned_points_are_run_once_each_and_in_order(study, store, inputs):
    run_all(store, study, by_x)
    assert [trial.params["x"] for trial in study.trials] == [1, 2, 3, 4]
    again = open_study(store, "task/run/encoder", inputs.sweep())
    plan_trials(store, again, POINTS)
    assert not has_trials(again, TrialState.WAITING)
    assert len(again.trials) == 4


def test_the_trial_with_most_epochs_is_taken_first_and_keeps_its_number(store, inputs):
    study = open_study(store, "task/run/random_weights", inputs.sweep())
    plan_trials(store, study, [{"num_epochs": number} for number in (1, 2, 4, 2)])
    taken = [take_trial(store, study, ME) for _ in range(3)]
    assert [trial.number for trial in taken] == [2, 1, 3]
    # Its process may have died by its fault: tried again, it comes last.
    try_again(store, study, taken[0]._trial_id, max_retries=1)
    assert [take_trial(store, study, ME).number for _ in range(2)] == [0, 4]


def test_with_a_pruner_trials_keep_their_order(store, inputs):
    pruner = MedianPrunerConfig(kind="median", num_startup_trials=2, num_warmup_epochs=1)
    study = open_study(store, "task/run/random_weights", inputs.sweep(pruner=pruner))
    plan_trials(store, study, [{"num_epochs": number} for number in (1, 2, 4)])
    assert [take_trial(store, study, ME).number for _ in range(3)] == [0, 1, 2]


def test_studies_of_other_runs_and_arms_in_the_same_store_do_not_mix(study, store, inputs):
    run_all(store, study, by_x)
    for name in ("task/another run/encoder", "another task/run/encoder", "task/run/random_weights"):
        assert not open_study(store, name, inputs.sweep()).trials


def test_a_trial_is_taken_by_one_of_two_processes(study, store, inputs):
    other = StudyStore(store.shown)
    same = open_study(other, "task/run/encoder", inputs.sweep())
    taken = [take_trial(*pair, ME).number for pair in [(store, study), (other, same)] * 2]
    assert sorted(taken) == [0, 1, 2, 3]
    assert take_trial(store, study, ME) is None


def test_a_trial_whose_process_died_is_queued_again_in_its_slot_until_it_was_too_often(study, store):
    slots = []
    while (trial := take_trial(store, study, ME)) is not None:
        slots.append(slot_of(trial))
        try_again(store, study, trial._trial_id, max_retries=2)
    assert sorted(slots) == sorted([0, 1, 2, 3] * 3)
    assert states(study) == ["FAIL"] * 12
    plan_trials(store, study, POINTS)  # the next run of the stage
    assert [slot_of(trial) for trial in study.get_trials(states=(TrialState.WAITING,))] == [0, 1, 2, 3]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_five_kills_of_one_trial_still_end_with_every_trial_finished(study, store, path):
    left = 5
    while (taken := take_trial(store, study, ME)) is not None:
        if slot_of(taken) == 0 and left:
            left -= 1
            try_again(store, study, taken._trial_id, max_retries=OmegaConf.load(path)["max_retries"])
            continue
        study.get_trials(deepcopy=False)
        trial = optuna.Trial(study, taken._trial_id)
        study.tell(trial, by_x(trial))
    assert left == 0
    assert sorted(trial.params["x"] for trial in study.get_trials(states=(TrialState.COMPLETE,))) == [1, 2, 3, 4]


def test_a_trial_that_finished_before_its_process_died_is_not_repeated(study, store):
    taken = take_trial(store, study, ME)
    study.get_trials(deepcopy=False)
    trial = optuna.Trial(study, taken._trial_id)
    study.tell(trial, by_x(trial))
    try_again(store, study, taken._trial_id, max_retries=2)
    assert states(study) == ["COMPLETE", "WAITING", "WAITING", "WAITING"]


def test_a_run_that_starts_again_takes_over_its_own_trials_and_leaves_those_of_others(study, store):
    take_trial(store, study, ME)
    take_trial(store, study, ANOTHER)
    take_over(store, study, lambda owner: owner == ME, max_retries=0)
    assert states(study) == ["FAIL", "RUNNING", "WAITING", "WAITING", "WAITING"]
    assert slot_of(study.trials[4]) == 0


def test_what_the_sampler_drew_stays_when_a_trial_is_tried_again(store, inputs):
    config = inputs.sweep(sampler=TpeSamplerConfig(kind="tpe", num_startup_trials=2))
    study = open_study(store, "task/run/tpe", config)
    plan_trials(store, study, [{}])
    taken = take_trial(store, study, ME)
    study.get_trials(deepcopy=False)
    drawn = optuna.Trial(study, taken._trial_id).suggest_float("x", 0, 1)
    try_again(store, study, taken._trial_id, max_retries=1)
    run_all(store, study, lambda trial: trial.suggest_float("x", 0, 1))
    assert study.best_trial.params == {"x": drawn}


def test_the_best_trials_are_the_first_of_equals_no_point_twice_and_never_pruned(study, store):
    def scored(trial):
        x = by_x(trial)
        if x == 1:
            trial.report(0.9, 1)
            raise optuna.TrialPruned
        return 0.7 if x == 4 else 0.5

    study.enqueue_trial({"x": 4}, user_attrs={"slot": 4})
    run_all(store, study, scored)
    assert [trial.params["x"] for trial in best_trials(study, 3)] == [4, 2, 3]
    assert [trial.params["x"] for trial in best_trials(study, 2)] == [4, 2]


def test_a_study_without_a_finished_trial_has_no_best(study):
    assert best_trials(study, 3) == []
