"""A sweep that is killed again and again ends as the undisturbed one."""

from __future__ import annotations

import json
from collections import Counter

import optuna
import psutil
import pytest
from optuna.trial import TrialState

import finetuning_inputs as inputs
from bertline.sweep.run import run_sweep
from finetuning_inputs import events_of
from fork_server import forking
from servers import wait_until
from sweep_pieces import BLOCKED, brief_job, sweep_until


def kill_in_the_middle(job, phase, num_calls):
    """Start the sweep and kill it without warning in a phase; return the helpers that it had."""
    blocked = job.run_folder / BLOCKED
    blocked.unlink(missing_ok=True)
    process = forking().Process(target=sweep_until, args=(job, phase, num_calls))
    job.run_folder.mkdir(exist_ok=True)
    process.start()
    try:
        wait_until(lambda: blocked.exists() or not process.is_alive(), every_s=0.02)
        assert process.is_alive(), "the sweep ended before it could be killed"
        return psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.join()


def without_times(result):
    """result.json without the seconds that things took, and without trials that were done again."""
    for arm in result["arms"].values():
        arm["trials"] = [trial for trial in arm["trials"] if trial["state"] != "FAIL"]
        for entry in (*arm["trials"], *arm["seeds"]):
            entry.pop("time_s")
            entry.pop("number", None)
        arm["trials"].sort(key=lambda trial: json.dumps(trial["params"]))
    return result


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_sweep_resumes_and_loses_and_repeats_nothing(tmp_path, workers):
    inputs.write_inputs(tmp_path)
    job = brief_job(tmp_path, sweep_workers=workers)
    helpers = kill_in_the_middle(job, "trials", 2)
    for phase, num_calls in (("trials", 1), ("repetitions", 1), ("tests", 1)):
        helpers += kill_in_the_middle(job, phase, num_calls)
    _, alive = psutil.wait_procs(helpers, timeout=60)
    assert not alive  # no helper outlives a killed sweep
    figures = run_sweep(job)
    assert figures == run_sweep(brief_job(tmp_path, "undisturbed"))

    killed, undisturbed = (
        without_times(json.loads((tmp_path / name / "result" / "result.json").read_text()))
        for name in ("run", "undisturbed")
    )
    assert killed == undisturbed
    database = f"sqlite:///{tmp_path}/run/studies.db"
    for name in optuna.get_all_study_names(database):
        study = optuna.load_study(study_name=name, storage=database)
        finished = study.get_trials(states=(TrialState.COMPLETE,))
        assert max(Counter(trial.user_attrs["slot"] for trial in finished).values()) == 1
        assert not study.get_trials(states=(TrialState.RUNNING, TrialState.WAITING))
    identities = Counter((event["arm"], event["kind"], event["number"]) for event in events_of(job))
    assert max(identities.values()) == 1
