"""What a pruner hears of a trial, and when it stops one."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from bertline.finetuning.job import DevCheck
from bertline.sweep.config import HalvingPrunerConfig, MedianPrunerConfig, NoPrunerConfig
from bertline.sweep.studies import checks_of, new_pruner, step_of
from bertline.sweep.workers import report_and_prune

HALVING = HalvingPrunerConfig(kind="successive_halving", reduction_factor=2, num_rungs=3)


def checks_of_a_run(num_epochs, pruner):
    """The looks at dev of a trial: its pruner's shares, and the ends of its epochs."""
    ends = {epoch / num_epochs for epoch in range(1, num_epochs + 1)}
    return [
        DevCheck(share, int(share * num_epochs), share in ends, {}) for share in sorted({*checks_of(pruner), *ends})
    ]


def run(study, config, inputs, score, *, num_epochs):
    """A trial with the same score at each look; returns the share at which it ended."""
    trial = study.ask()
    curve = []
    on_check = report_and_prune(trial, inputs.sweep(pruner=config), "accuracy", curve)
    try:
        for check in checks_of_a_run(num_epochs, config):
            on_check(DevCheck(check.share, check.epoch, check.at_epoch_end, {"accuracy": score}))
    except optuna.TrialPruned:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, score)
    return curve[-1][0]


@pytest.fixture
def new_study():
    return lambda config: optuna.create_study(direction="maximize", pruner=new_pruner(config))


def test_trials_of_two_and_of_four_epochs_meet_at_equal_shares(new_study, inputs):
    study = new_study(HALVING)
    for score, num_epochs in ((0.5, 4), (0.6, 4), (0.7, 4), (0.8, 4)):
        assert run(study, HALVING, inputs, score, num_epochs=num_epochs) == 1
    # Worse than all: out at the first rung, an eighth of its own schedule, however many epochs that is.
    assert run(study, HALVING, inputs, 0.1, num_epochs=2) == 0.125
    assert run(study, HALVING, inputs, 0.1, num_epochs=4) == 0.125
    assert run(study, HALVING, inputs, 0.9, num_epochs=2) == 1
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4 + ["PRUNED"] * 2 + ["COMPLETE"]


def test_a_trial_at_its_end_is_finished_however_it_compares(new_study, inputs):
    study = new_study(HALVING)
    run(study, HALVING, inputs, 0.9, num_epochs=3)

    def first_look(share, curve):
        report_and_prune(study.ask(), inputs.sweep(pruner=HALVING), "accuracy", curve)(
            DevCheck(share, round(3 * share), share == 1, {"accuracy": 0.1})
        )

    for rung in checks_of(HALVING):
        with pytest.raises(optuna.TrialPruned):
            first_look(rung, [])
    curve = []
    first_look(1.0, curve)
    assert curve == [[1.0, 0.1]]


def test_the_other_pruners_count_epochs_and_look_at_nothing_else():
    for config in (
        NoPrunerConfig(kind="none"),
        MedianPrunerConfig(kind="median", num_startup_trials=2, num_warmup_epochs=1),
    ):
        assert checks_of(config) == ()
        assert [step_of(config, check) for check in checks_of_a_run(3, config)] == [1, 2, 3]
        assert step_of(config, DevCheck(0.125, 0, False, {})) is None


def test_hyperband_stops_weak_trials_at_the_rungs_of_their_bracket(inputs):
    config = HalvingPrunerConfig(kind="hyperband", reduction_factor=2, num_rungs=3)
    study = optuna.create_study(study_name="hyperband", direction="maximize", pruner=new_pruner(config))
    scores = (np.random.default_rng(0).permutation(64) / 64).tolist()
    ended = [run(study, config, inputs, score, num_epochs=3) for score in scores]
    assert set(ended) == {0.125, 0.25, 0.5, 1}
    assert ended[max(range(64), key=scores.__getitem__)] == 1
    halving = optuna.create_study(direction="maximize", pruner=new_pruner(HALVING))
    stopped_at_once = [run(halving, HALVING, inputs, score, num_epochs=3) for score in scores].count(0.125)
    assert 0 < ended.count(0.125) < stopped_at_once  # only a part of the trials can be stopped at the first rung
