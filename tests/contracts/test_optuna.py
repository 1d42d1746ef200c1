"""What bertline relies on in Optuna."""

from __future__ import annotations

import inspect
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages._heartbeat import BaseHeartbeat
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from bertline.sweep.patience import PatientStorage

optuna.logging.set_verbosity(optuna.logging.WARNING)


def test_only_the_database_storage_has_a_heartbeat_so_sweeps_use_it(tmp_path: Path) -> None:
    journal = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    database = RDBStorage(f"sqlite:///{tmp_path}/study.db", heartbeat_interval=60)
    assert isinstance(database, BaseHeartbeat)
    assert not isinstance(journal, BaseHeartbeat)
    assert not isinstance(InMemoryStorage(), BaseHeartbeat)


def test_a_waiting_trial_is_taken_by_setting_its_state_and_run_under_its_id(tmp_path: Path) -> None:
    storage = RDBStorage(f"sqlite:///{tmp_path}/study.db", heartbeat_interval=60)
    study = optuna.create_study(storage=storage)
    study.enqueue_trial({"x": 0.25}, user_attrs={"slot": 7})
    (waiting,) = study.get_trials(states=(TrialState.WAITING,))
    # The private name, and the promise, that bertline.sweep.study uses: the second to ask comes too late.
    assert storage.set_trial_state_values(waiting._trial_id, TrialState.RUNNING)
    assert not storage.set_trial_state_values(waiting._trial_id, TrialState.RUNNING)
    study.get_trials(deepcopy=False)
    trial = optuna.Trial(study, waiting._trial_id)
    assert trial.suggest_float("x", 0, 1) == 0.25
    study.tell(trial, 0.5)
    assert study.best_trial.user_attrs == {"slot": 7}


def test_a_finished_trial_cannot_be_failed_or_told_again(tmp_path: Path) -> None:
    storage = RDBStorage(f"sqlite:///{tmp_path}/study.db", heartbeat_interval=60)
    study = optuna.create_study(storage=storage)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    (trial,) = study.trials
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
    study.tell(trial.number, 0.0, skip_if_finished=True)
    assert study.trials[0].value == trial.value


def age_heartbeats(database: Path) -> None:
    """Let an hour pass since the last heartbeats."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, '-1 hour')")


def test_a_silent_trial_is_failed_and_handed_to_the_callback(tmp_path: Path) -> None:
    given = []
    storage = RDBStorage(
        f"sqlite:///{tmp_path}/study.db",
        heartbeat_interval=1,
        grace_period=1,
        heartbeat_stale_trial_callback=lambda study, trial: given.append((trial.number, trial.state)),
    )
    study = optuna.create_study(storage=storage)
    trial = study.ask()
    storage.record_heartbeat(trial._trial_id)
    age_heartbeats(tmp_path / "study.db")
    optuna.storages.fail_stale_trials(study)
    assert given == [(0, TrialState.FAIL)]


def test_successive_halving_compares_at_rungs_of_whole_steps() -> None:
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1000, reduction_factor=2)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    for score in (0.5, 0.6, 0.7):
        trial = study.ask()
        trial.report(score, 1000)
        assert not trial.should_prune()
        study.tell(trial, score)
    trial = study.ask()
    trial.report(0.1, 999)
    assert not trial.should_prune()
    trial.report(0.1, 1000)
    assert trial.should_prune()


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
    age_heartbeats(tmp_path / "study.db")
    optuna.storages.fail_stale_trials(study)
    assert study.trials[0].state == TrialState.RUNNING

    study._storage.record_heartbeat(trial._trial_id)  # the private names that bertline.sweep.study uses
    age_heartbeats(tmp_path / "study.db")
    optuna.storages.fail_stale_trials(study)
    assert study.trials[0].state == TrialState.FAIL


def test_the_methods_that_the_cache_calls_are_those_that_wait_for_a_server() -> None:
    """`bertline.sweep.patience` overrides them, private ones too; a new one would not wait."""
    source = inspect.getsource(optuna.storages._cached_storage._CachedStorage)
    called = set(re.findall(r"self\._backend\.(\w+)", source))
    asks_no_server = {"get_heartbeat_interval", "get_heartbeat_stale_trial_callback"}
    assert called - asks_no_server - {"delete_study"} <= vars(PatientStorage).keys()


def test_a_trial_is_prepared_while_its_study_is_locked() -> None:
    creating = inspect.getsource(RDBStorage._create_new_trial)
    assert creating.index("for_update=True") < creating.index("self._get_prepared_new_trial(study_id, template_trial")
