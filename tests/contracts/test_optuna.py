"""What bertline relies on in Optuna."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState

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


def test_an_interrupt_or_a_score_that_is_no_number_fails_the_trial() -> None:
    study = optuna.create_study()

    def interrupted(trial: optuna.Trial) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.optimize(interrupted, n_trials=1)
    study.optimize(lambda trial: float("nan"), n_trials=1)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL] * 2


def age_heartbeats(database: Path) -> None:
    """Let an hour pass since the last heartbeats."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, '-1 hour')")


def test_a_running_trial_without_a_heartbeat_is_never_taken_for_dead_until_it_is_given_one(tmp_path: Path) -> None:
    storage = RDBStorage(f"sqlite:///{tmp_path}/study.db", heartbeat_interval=1, grace_period=1)
    study = optuna.create_study(storage=storage, study_name="task")
    trial = study.ask()  # what a process leaves that is killed before its first heartbeat
    age_heartbeats(tmp_path / "study.db")
    optuna.storages.fail_stale_trials(study)
    assert study.trials[0].state == TrialState.RUNNING

    study_id = storage.get_study_id_from_name("task")
    storage.record_heartbeat(storage.get_trial_id_from_study_id_trial_number(study_id, trial.number))
    age_heartbeats(tmp_path / "study.db")
    optuna.storages.fail_stale_trials(study)
    assert study.trials[0].state == TrialState.FAIL
