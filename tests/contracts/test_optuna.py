"""What bertline relies on in Optuna."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
from optuna.storages import RDBStorage
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.ERROR)


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
