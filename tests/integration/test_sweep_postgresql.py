"""Studies in PostgreSQL: processes, as on several machines, share a sweep; deaths and outages change nothing."""

from __future__ import annotations

from uuid import uuid4

import pytest
from optuna.trial import TrialState

import finetuning_inputs as inputs
from bertline.foundation.errors import ConfigError, MachineError
from bertline.sweep import studies, workers
from bertline.sweep.run import run_sweep
from bertline.sweep.studies import (
    Slot,
    configured_url,
    enqueue_missing,
    open_storage,
    open_study,
    planned_trials,
    reached,
)
from fork_server import forking
from servers import PostgreSQL, wait_until
from sweep_pieces import (
    BLOCKED,
    assert_each_done_once,
    brief_job,
    join_until_finished,
    result_of,
    studies_of,
    sweep_until,
    take_all,
)

PASSWORD = "not%2Dfor%2Dlogs"  # as it stands in an address; the password itself is `not-for-logs`


@pytest.fixture(scope="module")
def server():
    with PostgreSQL() as running:
        yield running


@pytest.fixture
def url(server):
    """The address of a database of the test's own."""
    return server.database(f"of_{uuid4().hex}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("inputs")
    inputs.write_inputs(made)
    return made


@pytest.fixture(scope="module")
def alone(folder):
    """result.json of a sweep by one process."""
    job = brief_job(folder, "alone")
    run_sweep(job)
    return result_of(job)


@pytest.fixture
def job(folder, url):
    made = brief_job(folder, f"run-{uuid4().hex[:8]}", studies_url=url)
    made.run_folder.mkdir()
    return made


def started(target, *arguments):
    process = forking().Process(target=target, args=arguments)
    process.start()
    return process


@pytest.mark.parametrize("who", ["the leader", "a member"])
@pytest.mark.parametrize("phase", ["trials", "repetitions"])
def test_a_killed_process_loses_only_what_it_had_in_progress(job, alone, who, phase):
    leads = who == "the leader"
    killed = started(sweep_until, job, phase, 0, leads)
    others = [started(join_until_finished, job)]
    if not leads:
        others.append(started(sweep_until, job, "", 0))
    try:
        wait_until((job.run_folder / BLOCKED).exists, every_s=0.02)
        killed.kill()
        for process in others:
            process.join(600)
        assert [process.exitcode for process in others] == [0] * len(others)
    finally:
        for process in (killed, *others):
            process.kill()
            process.join()
    assert result_of(job) == alone
    assert_each_done_once(job)
    processes = {trial.user_attrs["process"] for study in studies_of(job) for trial in study.get_trials()}
    assert len(processes) >= 2


def test_a_database_that_goes_away_ends_the_sweep_with_one_error_and_the_same_command_resumes(
    job, alone, server, monkeypatch
):
    for name, seconds in (("_HEARTBEAT_S", 1), ("_GRACE_S", 4)):
        monkeypatch.setattr(studies, name, seconds)
    fine_tune, calls = workers.fine_tune, []

    def loses_the_server(*args, **options):
        calls.append(args)
        if len(calls) == 3:
            server.stop()
        return fine_tune(*args, **options)

    monkeypatch.setattr(workers, "fine_tune", loses_the_server)
    try:
        with pytest.raises(MachineError, match=r"ada:\*\*\*.*cannot be read or written.*same command again") as caught:
            run_sweep(job)
    finally:
        server.start()
    assert "for-logs" not in str(caught.value)
    run_sweep(job)
    assert result_of(job) == alone
    assert_each_done_once(job)


def test_eight_processes_take_each_trial_once(url):
    sweep = inputs.sweep()
    study = open_study(open_storage(url), "task/run/encoder", sweep)
    enqueue_missing(study, [Slot(number, {"x": number / 2}) for number in range(48)])
    processes = [started(take_all, url, sweep) for _ in range(8)]
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * 8
    complete = planned_trials(study, (TrialState.COMPLETE,))
    assert {trial.params["x"]: trial.value for trial in complete} == {x / 2: x * x / 4 for x in range(48)}
    assert len(complete) == len(planned_trials(study)) == 48
    assert {trial.state for trial in study.get_trials()} <= {TrialState.COMPLETE, TrialState.PRUNED}


def test_a_server_that_refuses_or_is_away_is_a_clear_error_without_the_password(url):
    refused = url.replace(PASSWORD, "another-secret")
    with pytest.raises(MachineError, match="password authentication failed") as caught, reached(refused):
        open_storage(refused)
    assert "another-secret" not in str(caught.value)
    away = f"postgresql://ada:{PASSWORD}@127.0.0.1:1/studies"
    with pytest.raises(MachineError, match=r"ada:\*\*\*@127\.0\.0\.1:1/studies") as caught, reached(away):
        open_storage(away)
    assert "for-logs" not in str(caught.value) and PASSWORD not in str(caught.value)


@pytest.mark.parametrize("address", ["mysql://ada:secret@host/db", "sqlite://", "no address secret"])
def test_an_address_of_another_kind_is_refused_without_its_password(address):
    with pytest.raises(ConfigError, match="sqlite:///FILE or postgresql://HOST/DATABASE") as caught:
        configured_url(address)
    assert "secret" not in str(caught.value)
