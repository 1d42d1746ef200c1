"""A database that is away for a while ends no sweep, and no operation takes effect twice."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState
from sqlalchemy.exc import OperationalError

import finetuning_inputs as inputs
from bertline.foundation.errors import MachineError
from bertline.sweep import patience as patience_module
from bertline.sweep import store as store_module
from bertline.sweep.patience import is_outage
from bertline.sweep.store import StudyStore
from bertline.sweep.study import open_study, plan_trials, take_trial, try_again
from bertline.sweep.units import Unit, UnitTable
from servers import PostgreSQL, Proxy, wait_until

ME = "this machine"


@pytest.fixture(scope="module")
def server():
    with PostgreSQL() as running:
        yield running


@pytest.fixture
def url(server, request):
    return server.database(request.node.name)


@pytest.fixture
def store(url):
    return StudyStore(url)


@pytest.fixture
def study(store):
    study = open_study(store, "task/run/encoder", inputs.sweep())
    plan_trials(store, study, [{"x": 1}, {"x": 2}])
    return study


@pytest.fixture
def without_answer(monkeypatch):
    """The server commits, and the connection breaks before it can say so; returns how often that was."""
    import psycopg

    times = []

    def lose(commit):
        def committed(self, *args, **kwargs):
            commit(self, *args, **kwargs)
            if len(times) < 2:
                times.append(commit)
                lost = psycopg.OperationalError("server closed the connection unexpectedly")
                raise OperationalError("COMMIT", None, lost, connection_invalidated=True)

        return committed

    def arm():
        monkeypatch.setattr(sqlalchemy.orm.Session, "commit", lose(sqlalchemy.orm.Session.commit))
        transaction = sqlalchemy.engine.base.RootTransaction
        monkeypatch.setattr(transaction, "commit", lose(transaction.commit))
        return times

    return arm


@contextmanager
def away_until_missed(server, store):
    """The server is stopped, and starts again as soon as an operation of the store waits for it."""

    def come_back():
        try:
            wait_until(lambda: store.patience._waits, every_s=0.02)
        finally:
            server.start()  # for the next test, too

    server.stop()
    back = threading.Thread(target=come_back)
    back.start()
    try:
        yield
    finally:
        back.join()


def running(study, store):
    taken = take_trial(store, study, ME)
    study.get_trials(deepcopy=False)
    return optuna.Trial(study, taken._trial_id)


def states(study):
    return [trial.state.name for trial in study.get_trials()]


def test_an_answer_that_is_lost_creates_no_second_trial(store, without_answer):
    study = open_study(store, "task/run/encoder", inputs.sweep())
    times = without_answer()
    plan_trials(store, study, [{"x": 1}, {"x": 2}])
    assert len(times) == 2
    assert [trial.user_attrs["point"] for trial in study.get_trials()] == [{"x": 1}, {"x": 2}]
    study.enqueue_trial({"x": 3})
    assert len(study.get_trials()) == 3


def test_an_answer_that_is_lost_creates_no_second_study(store, without_answer):
    times = without_answer()
    open_study(store, "task/run/encoder", inputs.sweep())
    assert len(times) == 2
    assert [study.study_name for study in store.storage.get_all_studies()] == ["task/run/encoder"]


def test_a_trial_that_was_taken_without_an_answer_is_this_callers(study, store, without_answer):
    times = without_answer()
    taken = take_trial(store, study, ME)
    assert len(times) == 2
    assert states(study) == ["RUNNING", "WAITING"]
    assert taken.number == 0


def test_a_result_told_without_an_answer_is_told_once_and_another_s_stays_refused(study, store, without_answer):
    trial = running(study, store)
    trial.suggest_categorical("x", [1, 2])
    times = without_answer()
    trial.report(0.25, 1)
    study.tell(trial, 0.5)
    assert len(times) == 2
    assert states(study) == ["COMPLETE", "WAITING"]
    found = study.get_trials()[0]
    assert (found.value, found.params, found.intermediate_values) == (0.5, {"x": 1}, {1: 0.25})
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        store.storage.set_trial_state_values(trial._trial_id, TrialState.COMPLETE, [0.6])


def test_a_trial_failed_without_an_answer_is_queued_again_once(study, store, without_answer):
    trial = running(study, store)
    times = without_answer()
    try_again(store, study, trial._trial_id, max_retries=2)
    assert len(times) == 2
    try_again(store, study, trial._trial_id, max_retries=2)
    assert states(study) == ["FAIL", "WAITING", "WAITING"]


def test_a_unit_claimed_without_an_answer_is_this_callers(store, without_answer):
    table = UnitTable(store, "sweep")
    table.publish([Unit("baselines", {}, "a"), Unit("baselines", {}, "b")])
    times = without_answer()
    first = table.claim(None, max_losses=1)
    assert len(times) == 2
    assert (first.unit.result, table.claim(None, max_losses=1).unit.result) == ("a", "b")
    table.finish("a", "done")
    assert [row.state for row in table.rows()] == ["done", "claimed"]


def test_operations_wait_for_a_server_that_restarts_and_say_so_once(server, study, store, capsys):
    with away_until_missed(server, store):
        taken = take_trial(store, study, ME)
    assert taken.number == 0 and states(study) == ["RUNNING", "WAITING"]
    written = capsys.readouterr()
    assert written.err.count("cannot be reached; waiting for up to 300 s") == 1
    assert written.out.count("is back") == 1
    assert "for-logs" not in written.err + written.out


def test_a_connection_that_is_cut_again_and_again_changes_nothing(server, url):
    with Proxy(server.port) as proxy:
        store = StudyStore(url.replace(str(server.port), str(proxy.port)))
        study = open_study(store, "task/run/encoder", inputs.sweep())
        ended = threading.Event()

        def cut():
            while not ended.wait(0.4):
                proxy.go_away()
                proxy.come_back()

        cutter = threading.Thread(target=cut)
        cutter.start()
        try:
            plan_trials(store, study, [{"x": number} for number in range(8)])
            while (taken := take_trial(store, study, ME)) is not None:
                study.get_trials(deepcopy=False)
                study.tell(optuna.Trial(study, taken._trial_id), taken.number)
        finally:
            ended.set()
            cutter.join()
    found = open_study(StudyStore(url), "task/run/encoder", inputs.sweep()).get_trials()
    assert [(trial.number, trial.state.name, trial.value) for trial in found] == [
        (number, "COMPLETE", number) for number in range(8)
    ]


def test_a_query_that_the_server_cancels_is_asked_again(server, store, study, url, capfd):
    import psycopg

    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(url, autocommit=True) as admin, psycopg.connect(url) as locker:
        locker.execute("LOCK TABLE trials")
        found = []
        reader = threading.Thread(target=lambda: found.extend(store.storage.get_all_trials(study._study_id)))
        reader.start()
        wait_until(lambda: admin.execute(waiting).fetchall(), every_s=0.02)
        ((pid,),) = admin.execute(waiting).fetchall()
        admin.execute("SELECT pg_cancel_backend(%s)", [pid])
        wait_until(lambda: "cannot be reached" in capfd.readouterr().err)
        locker.rollback()
        reader.join(600)
    assert [trial.state.name for trial in found] == ["WAITING", "WAITING"]
    assert "SELECT" not in capfd.readouterr().err


def test_a_block_whose_lock_was_lost_writes_nothing_until_it_has_the_lock_again(server, store, study):
    (first, _), attempts = study.get_trials(), []

    def block():
        attempts.append(len(attempts))
        if len(attempts) == 1:
            server.restart()
            beat = threading.Thread(target=store.storage.get_all_studies)  # reconnects, as the heartbeat's thread may
            beat.start()
            beat.join()
        store.storage.set_trial_user_attr(first._trial_id, f"attempt {len(attempts)}", True)

    store.exclusively(study.study_name, block)
    assert attempts == [0, 1]
    assert set(study.get_trials()[0].user_attrs) >= {"attempt 2"}
    assert "attempt 1" not in study.get_trials()[0].user_attrs


def test_an_outage_that_lasts_too_long_is_an_error_that_says_how_to_resume(server, study, url, monkeypatch):
    monkeypatch.setattr(store_module, "PATIENCE_S", 0.5)
    store = StudyStore(url)
    server.stop()
    try:
        with pytest.raises(MachineError, match=r"ada:\*\*\*.*run the stage again to resume"), store.reached():
            store.storage.get_all_studies()
    finally:
        server.start()


def test_nobody_is_taken_for_dead_because_the_server_was_away(server, store, study, monkeypatch):
    # How long contact lasts is measured by a clock that only this test moves, however slowly the server starts.
    clock = SimpleNamespace(now_s=time.time())
    ours = SimpleNamespace(time=lambda: clock.now_s, monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr(patience_module, "time", ours)
    store.storage.grace_period = 1
    taken = take_trial(store, study, "another machine")
    time.sleep(2.1)
    for _ in range(7):
        store.storage.get_all_studies()
        clock.now_s += store_module._GRACE_S / 6
    assert store.can_tell_the_silent
    with away_until_missed(server, store):
        assert store.silent_trials(study) == []  # though it waited for the server, and found a heartbeat long past
    assert not store.can_tell_the_silent
    monkeypatch.setattr(store_module, "_GRACE_S", 0.0)
    assert store.silent_trials(study) == [taken._trial_id]


def test_a_wrong_request_or_password_is_no_outage(store, url):
    def error_of(address, statement):
        engine = sqlalchemy.create_engine(address.replace("postgresql:", "postgresql+psycopg:"))
        with pytest.raises(sqlalchemy.exc.SQLAlchemyError) as caught, engine.connect() as connection:
            connection.execute(sqlalchemy.text(statement))
        return caught.value

    assert not is_outage(error_of(url, "SELECT nonsense"))
    assert not is_outage(error_of(url.replace("not%2D", "wrong"), "SELECT 1"))
    assert not is_outage(error_of(url.rpartition("/")[0] + "/no_such_database", "SELECT 1"))
    assert not is_outage(ValueError("of the code's own"))
    assert is_outage(error_of("postgresql://ada@127.0.0.1:1/studies", "SELECT 1"))
    assert is_outage(error_of(url, "SELECT pg_terminate_backend(pg_backend_pid())"))
