"""What bertline relies on in Optuna."""

from __future__ import annotations

import threading

import optuna
from optuna.storages import RDBStorage

optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_optimize_takes_the_waiting_trials_in_order_and_gives_signs_of_life(tmp_path, monkeypatch) -> None:
    beaten = threading.Event()
    record = RDBStorage.record_heartbeat

    def recorded(self: RDBStorage, trial_id: int) -> None:
        record(self, trial_id)
        beaten.set()

    monkeypatch.setattr(RDBStorage, "record_heartbeat", recorded)
    study = optuna.create_study(storage=RDBStorage(f"sqlite:///{tmp_path}/study.db", heartbeat_interval=1))
    for x in (0.25, 0.75):
        study.enqueue_trial({"x": x}, user_attrs={"slot": x})

    def objective(trial: optuna.Trial) -> float:
        assert beaten.wait(60)
        return trial.suggest_float("x", 0, 1)

    study.optimize(objective, n_trials=1)
    study.optimize(objective, n_trials=1)
    assert [(trial.value, trial.user_attrs) for trial in study.trials] == [(x, {"slot": x}) for x in (0.25, 0.75)]
