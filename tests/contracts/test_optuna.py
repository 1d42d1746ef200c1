"""What bertline relies on in Optuna."""

from __future__ import annotations

import time
from pathlib import Path

import optuna
from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages._heartbeat import BaseHeartbeat
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.WARNING)


def test_only_the_database_storage_has_a_heartbeat_so_sweeps_use_it(tmp_path: Path) -> None:
    journal = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    database = RDBStorage(f"sqlite:///{tmp_path}/study.db", heartbeat_interval=60)
    assert isinstance(database, BaseHeartbeat)
    assert not isinstance(journal, BaseHeartbeat)
    assert not isinstance(InMemoryStorage(), BaseHeartbeat)


def test_dead_trials_are_tried_again_by_the_storages_own_callback(tmp_path: Path) -> None:
    callback = RetryHeartbeatStaleTrialCallback(max_retry=2)
    RDBStorage(f"sqlite:///{tmp_path}/study.db", heartbeat_interval=60, heartbeat_stale_trial_callback=callback)


def test_a_study_is_continued_by_its_name(tmp_path: Path) -> None:
    for expected in (1, 2):
        study = optuna.create_study(
            storage=f"sqlite:///{tmp_path}/study.db", study_name="task", load_if_exists=True, direction="maximize"
        )
        study.optimize(lambda trial: trial.suggest_float("lr", 1e-5, 1e-3, log=True), n_trials=1)
        assert len(study.trials) == expected


def test_a_pruned_trial_keeps_its_scores_by_epoch(tmp_path: Path) -> None:
    def objective(trial: optuna.Trial) -> float:
        trial.report(0.4, 1)
        raise optuna.TrialPruned

    study = optuna.create_study()
    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert trial.state == TrialState.PRUNED
    assert trial.intermediate_values == {1: 0.4}


def test_a_running_trial_without_a_heartbeat_is_never_taken_for_dead_until_it_is_given_one(tmp_path: Path) -> None:
    storage = RDBStorage(f"sqlite:///{tmp_path}/study.db", heartbeat_interval=1, grace_period=1)
    study = optuna.create_study(storage=storage)
    trial = study.ask()  # what a process leaves that is killed before its first heartbeat
    time.sleep(2.5)
    optuna.storages.fail_stale_trials(study)
    assert study.trials[0].state == TrialState.RUNNING

    study._storage.record_heartbeat(trial._trial_id)  # the private names that bertline.sweep.study uses
    time.sleep(2.5)
    optuna.storages.fail_stale_trials(study)
    assert study.trials[0].state == TrialState.FAIL
