"""A sweep that is killed again and again ends as the undisturbed one."""

from __future__ import annotations

import time
from collections import Counter

import psutil
from optuna.trial import TrialState

import finetuning_inputs as inputs
from bertline.sweep import store as store_module
from bertline.sweep.run import run_sweep
from bertline.sweep.space import planned_points
from bertline.sweep.store import StudyStore
from bertline.sweep.study import open_study, plan_trials
from finetuning_inputs import events_of
from sweep_pieces import brief_job, start_until


def test_a_trial_killed_before_its_first_heartbeat_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "_HEARTBEAT_S", 1)
    monkeypatch.setattr(store_module, "_GRACE_S", 2)
    inputs.write_inputs(tmp_path)
    job = inputs.sweep_job(tmp_path, tmp_path / "run", sweep=inputs.sweep(random_weights_baseline="never"))
    job.run_folder.mkdir()
    store = StudyStore(job.studies_url)
    study = open_study(store, "halves/run/encoder", job.sweep)
    plan_trials(store, study, planned_points(job.sweep, job.task))
    # Taken, and nothing more: what a kill leaves that comes before the trial is signed.
    store.storage.set_trial_state_values(study.trials[0]._trial_id, TrialState.RUNNING)

    run_sweep(job, in_process=True)

    states = Counter(trial.state for trial in study.get_trials())
    assert states == {TrialState.COMPLETE: 6, TrialState.FAIL: 1}


def test_no_worker_outlives_a_killed_sweep(tmp_path):
    inputs.write_inputs(tmp_path)
    process = start_until(tmp_path, 1, 2)
    try:
        while len(events_of(brief_job(tmp_path))) < 1:
            assert process.is_alive()
            time.sleep(0.02)
        workers = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.join()
    assert len(workers) >= 2
    _, alive = psutil.wait_procs(workers, timeout=600)
    assert not alive
