"""What bertline relies on in Optuna."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_an_interrupt_or_a_score_that_is_no_number_fails_the_trial() -> None:
    study = optuna.create_study()

    def interrupted(trial: optuna.Trial) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.optimize(interrupted, n_trials=1)
    study.optimize(lambda trial: float("nan"), n_trials=1)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL] * 2
