"""Which plots a study is enough for."""

from __future__ import annotations

import optuna
import pytest

from bertline.sweep.plots import write_plots


@pytest.mark.parametrize("num_trials", [2, 9, 10])
def test_importance_is_not_shown_below_ten_trials(tmp_path, num_trials):
    study = optuna.create_study(direction="maximize")
    spaces = {name: optuna.distributions.FloatDistribution(0, 1) for name in ("learning_rate", "dropout")}
    for number in range(num_trials):
        params = {"learning_rate": number / 10, "dropout": (number * 3 % 7) / 7}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=spaces, value=params["dropout"]))
    missing = write_plots(tmp_path, study, "accuracy")
    assert (tmp_path / "importance.svg").exists() == (num_trials >= 10)
    assert missing == ({} if num_trials >= 10 else {"importance": "fewer than 10 trials finished"})
    assert (tmp_path / "history.svg").exists()
