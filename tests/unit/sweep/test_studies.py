"""Planned trials, which any number of processes take from a study and which outlive them."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from contextlib import closing

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from bertline.foundation.errors import MachineError
from bertline.sweep.config import ModelSamplerConfig
from bertline.sweep.studies import (
    REASON,
    SLOT,
    Slot,
    add_missing_events,
    best_trials,
    enqueue_missing,
    fail_silent_trials,
    fail_trials,
    importances,
    missing,
    open_storage,
    open_study,
    planned_trials,
    process_name,
    reached,
    reason_of,
    run_next,
)

SLOTS = [Slot(place, {"x": x}) for place, x in enumerate((1, 2, 3, 4))]


def by_x(trial):
    return float(trial.suggest_categorical("x", [1, 2, 3, 4]))


def states(study):
    return [trial.state.name for trial in study.trials]


@pytest.fixture
def run_all(inputs, url):
    """What a worker does: run what waits, and return how many trials that were."""

    def run(study, objective=by_x, sweep=None):
        number = 0
        while run_next(study, objective, sweep or inputs.sweep(), url):
            number += 1
        return number

    return run


def begin(study, process):
    """What a process leaves that dies while it runs a trial."""
    with pytest.warns(UserWarning, match="Heartbeat"):
        trial = study.ask()
    trial.set_user_attr("process", process)
    return trial


def test_planned_points_are_run_once_each_and_in_order(study, inputs, url, run_all):
    assert run_all(study) == 4
    assert [trial.params["x"] for trial in study.trials] == [1, 2, 3, 4]
    again = open_study(open_storage(url), "task/run/encoder", inputs.sweep())
    enqueue_missing(again, SLOTS, failed_too=True)
    assert (run_all(again), len(again.trials)) == (0, 4)


def test_processes_that_take_trials_at_the_same_time_take_each_once(url, inputs, run_all):
    study = open_study(open_storage(url), "task/run/encoder", inputs.sweep())
    enqueue_missing(study, [Slot(place, {"x": 1}) for place in range(24)])
    others = [open_study(open_storage(url), study.study_name, inputs.sweep()) for _ in range(4)]
    threads = [threading.Thread(target=run_all, args=(other,)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(states(study)) == {"COMPLETE": 24}
    assert [trial.user_attrs[SLOT] for trial in study.trials] == list(range(24))


def test_the_trials_of_a_dead_process_are_done_again_in_their_slots(study, url, run_all):
    begin(study, "another:1")
    begin(study, process_name())
    fail_trials(study, url, "another:1")
    assert states(study) == ["FAIL", "RUNNING", "WAITING", "WAITING"]
    fail_trials(study, url)
    assert [slot.name for slot in missing(study, SLOTS)] == [0, 1]
    enqueue_missing(study, SLOTS)
    assert missing(study, SLOTS) == []
    assert run_all(study) == 4
    complete = planned_trials(study, (TrialState.COMPLETE,))
    assert [(trial.user_attrs[SLOT], trial.params["x"]) for trial in complete] == [(2, 3), (3, 4), (0, 1), (1, 2)]
    assert "done again" in reason_of(study.trials[0])


def test_a_trial_that_failed_by_itself_is_done_again_only_when_the_stage_is(study, run_all):
    def diverges(trial):
        trial.set_user_attr(REASON, "The loss is not finite.")
        return float("nan")

    assert run_all(study, diverges) == 4
    enqueue_missing(study, SLOTS)
    assert states(study) == ["FAIL"] * 4
    assert reason_of(study.trials[0]) == "The loss is not finite."
    enqueue_missing(study, SLOTS, failed_too=True)
    assert states(study)[4:] == ["WAITING"] * 4


def test_a_stop_leaves_the_trial_that_runs_to_the_next_leader(study, url, run_all):
    def stopped(trial):
        try:
            raise KeyboardInterrupt("stopped by SIGTERM")
        except KeyboardInterrupt:
            if trial.number == 1:
                raise SystemExit(1)  # noqa: B904 (as Lightning does)
            raise

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            run_all(study, stopped)
    assert states(study) == ["RUNNING", "RUNNING", "WAITING", "WAITING"]
    fail_trials(study, url)
    assert [slot.name for slot in missing(study, SLOTS)] == [0, 1]


def test_a_result_that_comes_too_late_is_dropped(study, inputs, url, run_all, capsys):
    """The machine was silent for so long that another one has failed the trial."""

    def late(trial):
        fail_trials(study, url)
        return by_x(trial) if len(planned_trials(study, (TrialState.FAIL,))) == 1 else trial.report(0.5, 1)

    assert run_next(study, lambda trial: fail_trials(study, url) or 0.5, inputs.sweep(), url)
    assert run_next(study, late, inputs.sweep(), url)  # found when it suggests, reports or returns
    assert states(study) == ["FAIL", "FAIL", "WAITING", "WAITING"]
    assert capsys.readouterr().err.count("came too late") == 2
    enqueue_missing(study, SLOTS)
    assert run_all(study) == 4
    assert len(best_trials(study, 9)) == 4


def test_a_trial_that_falls_silent_is_failed_even_if_it_never_gave_a_sign_of_life(study, url, tmp_path):
    begin(study, "another machine:1")
    storage, known = open_storage(url), set()

    def pass_an_hour():
        with closing(sqlite3.connect(tmp_path / "studies.db")) as connection, connection:
            connection.execute("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, '-1 hour')")

    fail_silent_trials(study, storage, known)
    assert states(study)[0] == "RUNNING"
    pass_an_hour()
    fail_silent_trials(study, storage, known)
    assert states(study)[0] == "FAIL"


def test_a_database_that_cannot_be_used_is_one_error_that_says_how_to_resume(tmp_path):
    (tmp_path / "studies.db").write_bytes(b"not a database" * 100)
    url = f"sqlite:///{tmp_path}/studies.db"
    message = r"studies\.db cannot be read or written \(file is not a database\).*same command again"
    with pytest.raises(MachineError, match=message), reached(url):
        open_storage(url)


@pytest.mark.parametrize("kind", ["tpe", "gp"])
def test_a_model_draws_another_point_for_each_slot_and_the_same_ones_again(tmp_path, inputs, kind):
    sweep = inputs.sweep(sampler=ModelSamplerConfig(kind=kind, num_startup_trials=4))

    def drawn(name):
        url = f"sqlite:///{tmp_path}/{name}.db"
        enqueue_missing(open_study(open_storage(url), "task/run/arm", sweep), [Slot(place) for place in range(8)])
        for _ in range(8):
            study = open_study(open_storage(url), "task/run/arm", sweep)  # each trial in a process of its own
            run_next(study, lambda trial: -((trial.suggest_float("x", 0, 1) - 0.5) ** 2), sweep, url)
        return [trial.params["x"] for trial in study.trials]

    once = drawn("once")
    assert len(set(once)) == 8
    assert drawn("again") == once


def test_the_best_trials_are_the_first_of_equals_no_point_twice_and_never_pruned(study, run_all):
    def scored(trial):
        x = by_x(trial)
        if x == 1:
            trial.report(0.9, 1)
            raise optuna.TrialPruned
        return 0.7 if x == 4 else 0.5

    enqueue_missing(study, [*SLOTS, Slot(4, {"x": 4})])
    run_all(study, scored)
    assert [trial.params["x"] for trial in best_trials(study, 3)] == [4, 2, 3]
    assert [trial.params["x"] for trial in best_trials(study, 2)] == [4, 2]


def test_importances_come_with_twenty_finished_trials_and_name_what_matters():
    def trial(number, state=TrialState.COMPLETE):
        params = {"rate": number / 24, "size": number * 7 % 5}
        distributions = {
            "rate": optuna.distributions.FloatDistribution(0, 1),
            "size": optuna.distributions.CategoricalDistribution(range(5)),
        }
        value = params["rate"] if state == TrialState.COMPLETE else None
        return create_trial(state=state, params=params, distributions=distributions, value=value)

    trials = [trial(number) for number in range(24)]
    shares = importances(trials)
    assert list(shares) == ["rate", "size"]
    assert sum(shares.values()) == pytest.approx(1)
    assert importances(trials) == shares
    assert importances([*trials[:19], trial(20, TrialState.FAIL)]) == {}


def test_an_event_is_written_once_however_often_it_is_given_and_a_torn_line_again(tmp_path):
    def event(number, kind="trial"):
        return {"arm": "encoder", "kind": kind, "number": number}

    path = tmp_path / "events.jsonl"
    add_missing_events(tmp_path, [event(0), event(1)])
    path.write_text(path.read_text()[:-7])
    add_missing_events(tmp_path, [event(0), event(1), event(2), event(0, "seed")])
    numbers = [(one["kind"], one["number"]) for one in map(json.loads, path.read_text().splitlines())]
    assert numbers == [("trial", 0), ("trial", 1), ("trial", 2), ("seed", 0)]


def test_a_heartbeat_that_the_database_does_not_take_ends_nothing(url, monkeypatch):
    storage = open_storage(url)

    def fail(*_):
        raise optuna.exceptions.StorageInternalError

    monkeypatch.setattr(optuna.storages.RDBStorage, "record_heartbeat", fail)
    storage.record_heartbeat(1)
