"""Studies in PostgreSQL: several machines share one, and its password stays where it was given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

import bertline
import finetuning_inputs as inputs
from bertline.foundation.errors import ConfigError, MachineError
from bertline.sweep import store as store_module
from bertline.sweep.run import run_sweep
from bertline.sweep.space import planned_points
from bertline.sweep.store import StudyStore
from bertline.sweep.study import open_study, plan_trials, take_trial
from bertline.tracking.config import STUDIES_VARIABLE, TrackingConfig
from servers import PostgreSQL

PASSWORD = "not%2Dfor%2Dlogs"  # as it stands in an address; the password itself is `not-for-logs`


@pytest.fixture(scope="module")
def server():
    with PostgreSQL("not-for-logs") as running:
        yield running


@pytest.fixture
def url(server, request):
    """The address of a database of the test's own."""
    return server.database(request.node.name)


def sweep():
    return inputs.sweep(random_weights_baseline="never", num_seeds=1)


def job_in(folder, url="sqlite:///never/made.db"):
    return inputs.sweep_job(
        folder.parent, folder / "run", sweep=sweep(), task=inputs.task(label_efficiency_rows=()), studies_url=url
    )


_MACHINE = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import test_sweep_postgresql as test
from bertline.sweep.run import run_sweep
run_sweep(test.job_in(Path({folder!r})), in_process=True)
"""


def test_machines_share_a_study_and_each_point_is_run_once(tmp_path, url):
    inputs.write_inputs(tmp_path)
    folders = [tmp_path / name for name in ("first", "second")]
    tests, support = str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")
    machines = [
        subprocess.Popen(
            [sys.executable, "-c", _MACHINE.format(tests=tests, folder=str(folder))],
            env={
                **os.environ,
                STUDIES_VARIABLE: url,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join([str(Path(bertline.__file__).parents[1]), support]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for folder in folders
    ]
    outputs = [machine.communicate(timeout=600)[0] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], outputs
    study = optuna.load_study(
        study_name="halves/run/encoder", storage=url.replace("postgresql:", "postgresql+psycopg:")
    )
    assert Counter(trial.state for trial in study.trials) == {TrialState.COMPLETE: 6}
    assert len({json.dumps(trial.params, sort_keys=True) for trial in study.trials}) == 6
    # Both resume with the same choice, and nothing they wrote or said has the password.
    results = [json.loads((folder / "run/result/result.json").read_text()) for folder in folders]
    assert results[0]["arms"]["encoder"]["best_params"] == results[1]["arms"]["encoder"]["best_params"]
    assert results[0]["arms"]["encoder"]["test_mean"] == results[1]["arms"]["encoder"]["test_mean"]
    assert not any("for-logs" in output or PASSWORD in output for output in outputs)
    for folder in folders:
        for path in (folder / "run").rglob("*"):
            assert path.is_dir() or b"for-logs" not in path.read_bytes()


def test_a_trial_of_a_machine_that_fell_silent_is_tried_again_by_another(tmp_path, url, monkeypatch):
    monkeypatch.setattr(store_module, "_HEARTBEAT_S", 1)
    monkeypatch.setattr(store_module, "_GRACE_S", 2)
    inputs.write_inputs(tmp_path)
    job = job_in(tmp_path / "machine", url)
    store = StudyStore(url)
    study = open_study(store, "halves/run/encoder", job.sweep)
    plan_trials(store, study, planned_points(job.sweep, job.task))
    silent = take_trial(store, study, "another machine")
    run_sweep(job)
    states = {trial.number: trial.state for trial in study.get_trials()}
    assert states.pop(silent.number) == TrialState.FAIL
    assert Counter(states.values()) == {TrialState.COMPLETE: 6}


def test_a_trial_is_taken_once_and_a_lock_is_let_go(url):
    stores = [StudyStore(url) for _ in range(2)]
    studies = [open_study(store, "task/run/encoder", sweep()) for store in stores]
    plan_trials(stores[0], studies[0], [{"x": 1}, {"x": 2}])
    plan_trials(stores[1], studies[1], [{"x": 1}, {"x": 2}])
    taken = [take_trial(store, study, "me") for store, study in zip(stores, studies, strict=True)]
    assert sorted(trial.number for trial in taken) == [0, 1]
    assert take_trial(stores[0], studies[0], "me") is None


def test_a_server_that_refuses_or_is_away_is_a_clear_error_without_the_password(url):
    refused = url.replace(PASSWORD, "another-secret")
    with pytest.raises(MachineError, match="password authentication failed") as caught:
        StudyStore(refused)
    assert "another-secret" not in str(caught.value)
    away = f"postgresql://ada:{PASSWORD}@127.0.0.1:1/studies"
    with pytest.raises(MachineError, match=r"ada:\*\*\*@127\.0\.0\.1:1/studies.*run the stage again") as caught:
        StudyStore(away)
    assert "for-logs" not in str(caught.value) and PASSWORD not in str(caught.value)


def test_a_configuration_never_has_a_password_and_an_address_of_another_kind_is_refused(tmp_path, monkeypatch):
    fields = {"enabled": True, "uri": "sqlite:///x.db", "experiment_name": "x", "log_text": False}
    fields |= {"system_metrics": False, "system_metrics_every_s": 1.0}
    for address in (f"postgresql://ada:{PASSWORD}@host/db", f"postgresql://host/db?password={PASSWORD}"):
        with pytest.raises(ValueError, match="BERTLINE_STUDIES_URL") as caught:
            TrackingConfig(studies_url=address, **fields)
        assert PASSWORD not in str(caught.value)
    for address in ("mysql://ada:secret@host/db", "sqlite://", "no address secret"):
        with pytest.raises(ConfigError, match="sqlite:///FILE or postgresql://HOST/DATABASE") as caught:
            StudyStore(address)
        assert "secret" not in str(caught.value)
    monkeypatch.setenv(STUDIES_VARIABLE, f"sqlite:///{tmp_path}/from-the-environment.db")
    StudyStore(f"sqlite:///{tmp_path}/from-the-configuration.db")
    assert [path.name for path in tmp_path.glob("*.db")] == ["from-the-environment.db"]
