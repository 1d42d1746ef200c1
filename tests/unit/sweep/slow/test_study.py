"""Studies that outlive their processes."""

from __future__ import annotations

import optuna
from optuna.trial import TrialState

from bertline.sweep.config import TpeSamplerConfig
from bertline.sweep.store import StudyStore
from bertline.sweep.study import (
    open_study,
    plan_trials,
    take_trial,
)

POINTS = [{"x": value} for value in (1, 2, 3, 4)]
ME, ANOTHER = "this run folder", "that of another machine"


def test_tpe_draws_another_point_for_each_trial_and_the_same_ones_again(tmp_path, inputs):
    config = inputs.sweep(sampler=TpeSamplerConfig(kind="tpe", num_startup_trials=4))

    def drawn(name):
        store = StudyStore(f"sqlite:///{tmp_path}/{name}.db")
        plan_trials(store, open_study(store, "task/run/tpe", config), [{}] * 8)
        for _ in range(8):
            # Each trial opens the study again, as a worker does.
            number = len(open_study(store, "task/run/tpe", config).get_trials(states=(TrialState.COMPLETE,)))
            study = open_study(store, "task/run/tpe", config, draw=f"{number}/{number}")
            taken = take_trial(store, study, ME)
            study.get_trials(deepcopy=False)
            trial = optuna.Trial(study, taken._trial_id)
            study.tell(trial, -((trial.suggest_float("x", 0, 1) - 0.5) ** 2))
        return [trial.params["x"] for trial in study.trials]

    once = drawn("once")
    assert len(set(once)) == 8
    assert drawn("again") == once
