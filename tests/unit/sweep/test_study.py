"""Studies that outlive their processes."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState

from bertline.sweep.config import MedianPrunerConfig, TpeSamplerConfig
from bertline.sweep.study import best_trial, is_finished, open_study, plan_trials, run_waiting_trials, slot_of
from bertline.sweep.trials import report_and_prune

POINTS = [{"x": value} for value in (1, 2, 3, 4)]


def take(study, folder, objective):
    run_waiting_trials(study, folder / "lock", objective, after=lambda: None)


def by_x(trial):
    return float(trial.suggest_categorical("x", [1, 2, 3, 4]))


@pytest.fixture
def study(tmp_path, inputs):
    study = open_study(tmp_path, "encoder", inputs.sweep())
    plan_trials(study, POINTS)
    return study


def test_planned_points_are_run_once_each_and_in_order(study, tmp_path, inputs):
    take(study, tmp_path, by_x)
    assert [trial.params["x"] for trial in study.trials] == [1, 2, 3, 4]
    assert is_finished(study)
    again = open_study(tmp_path, "encoder", inputs.sweep())
    plan_trials(again, POINTS)
    take(again, tmp_path, by_x)
    assert len(again.trials) == 4


def test_a_point_whose_trial_failed_is_planned_again_in_its_slot(study, tmp_path):
    def breaks_on_two(trial):
        if by_x(trial) == 2:
            raise OSError("the disk is full")
        return 0.0

    with pytest.raises(OSError, match="disk"):
        take(study, tmp_path, breaks_on_two)
    plan_trials(study, POINTS)
    take(study, tmp_path, by_x)
    finished = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert sorted(trial.params["x"] for trial in finished) == [1, 2, 3, 4]
    assert sorted(slot_of(trial) for trial in finished) == [0, 1, 2, 3]


def test_the_best_trial_is_the_first_of_the_best_and_never_a_pruned_one(study, tmp_path):
    def flat(trial):
        if by_x(trial) == 1:
            trial.report(0.9, 1)
            raise optuna.TrialPruned
        return 0.5

    take(study, tmp_path, flat)
    assert best_trial(study).params["x"] == 2


def test_a_study_without_a_finished_trial_has_no_best(study):
    assert best_trial(study) is None


def test_planned_trials_leave_their_points_to_tpe(tmp_path, inputs):
    config = inputs.sweep(sampler=TpeSamplerConfig(kind="tpe", num_startup_trials=2))
    study = open_study(tmp_path, "encoder", config)
    plan_trials(study, [{}] * 8)
    take(study, tmp_path, lambda trial: -((trial.suggest_float("x", 0, 1) - 0.5) ** 2))
    assert len({trial.params["x"] for trial in study.trials}) == 8


def test_a_trial_below_the_median_is_pruned_after_the_warm_up(tmp_path, inputs):
    config = inputs.sweep(pruner=MedianPrunerConfig(kind="median", num_startup_trials=2, num_warmup_epochs=1))
    study = open_study(tmp_path, "encoder", config)
    plan_trials(study, POINTS)
    epochs_run = {}

    def objective(trial):
        score = -by_x(trial)  # each is worse than those before it
        on_epoch = report_and_prune(trial)
        for epoch in (1, 2, 3):
            epochs_run[-score] = epoch
            on_epoch(epoch, score)
        return score

    take(study, tmp_path, objective)
    assert epochs_run == {1: 3, 2: 3, 3: 2, 4: 2}
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "PRUNED", "PRUNED"]
