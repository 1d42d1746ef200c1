"""Workers that are killed at random moments change nothing, and neither does their number."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
import time
from pathlib import Path

import optuna
from omegaconf import OmegaConf
from optuna.trial import TrialState

import finetuning_inputs as inputs
from bertline.sweep import store
from bertline.sweep.config import RandomSamplerConfig
from bertline.sweep.run import run_sweep
from bertline.tasks.config import ChoiceSpace, LogUniformSpace
from fork_server import forked_workers

GRID = {
    "learning_rate": ChoiceSpace(kind="choice", values=(1e-3, 3e-3, 1e-2)),
    "batch_size": ChoiceSpace(kind="choice", values=(16.0, 32.0)),
    "num_epochs": ChoiceSpace(kind="choice", values=(1.0, 2.0, 3.0)),
}
SHIPPED = sorted((Path(__file__).parents[2] / "conf" / "sweep").glob("*.yaml"))


def sweep_job(folder, name, *, workers, **changes):
    fields = {
        "space": GRID,
        "num_trials": 18,
        "num_seeds": 1,
        "random_weights_baseline": "never",
        "max_retries": min(OmegaConf.load(path)["max_retries"] for path in SHIPPED),
    }
    return inputs.sweep_job(
        folder,
        folder / name,
        sweep=inputs.sweep(**{**fields, **changes}),
        task=inputs.task(label_efficiency_rows=()),
        runtime=inputs.runtime(sweep_workers=workers, num_threads=None),
    )


def result_of(job):
    """result.json without the seconds that things took."""
    result = json.loads((job.run_folder / "result" / "result.json").read_text())
    for arm in result["arms"].values():
        for entry in (*arm["trials"], *arm["seeds"]):
            del entry["time_s"]
        arm["trials"].sort(key=lambda trial: json.dumps(trial["params"]))
        for trial in arm["trials"]:
            del trial["number"]  # of two workers, either may be the first to take a trial
    return result


def finished_trials(job):
    path = job.run_folder / "events.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


class Killer(threading.Thread):
    """Kills one of the workers at each of some moments, without warning."""

    def __init__(self, job, moments):
        super().__init__(daemon=True)
        self.job, self.moments, self.num_killed = job, moments, 0
        self.random = random.Random(0)

    def run(self):
        for num_finished in self.moments:
            while finished_trials(self.job) < num_finished:
                time.sleep(0.02)
            time.sleep(self.random.uniform(0, 0.3))
            while not (workers := [p for p in multiprocessing.active_children() if p.name.startswith("sweep-")]):
                time.sleep(0.02)
            os.kill(self.random.choice(workers).pid, signal.SIGKILL)
            self.num_killed += 1

    def hold(self, monkeypatch):
        """Let the sweep wait for a kill that is late, so that it does not end before, and no trial dies many times."""
        add = store.add_missing_events

        def is_late():
            return any(finished_trials(self.job) >= moment + 3 for moment in self.moments[self.num_killed :])

        def added(*args):
            add(*args)
            while self.is_alive() and is_late():  # if the thread has failed, no kill will come
                time.sleep(0.02)

        monkeypatch.setattr(store, "add_missing_events", added)


def test_a_grid_whose_workers_are_killed_five_times_ends_as_the_undisturbed_one(tmp_path, monkeypatch):
    forked_workers(monkeypatch)
    inputs.write_inputs(tmp_path)
    undisturbed = sweep_job(tmp_path, "undisturbed", workers=1)
    run_sweep(undisturbed)
    killed = sweep_job(tmp_path, "killed", workers=2)
    killer = Killer(killed, moments=(1, 4, 7, 10, 13))
    killer.hold(monkeypatch)
    killer.start()
    run_sweep(killed)
    assert killer.num_killed == 5

    study = optuna.load_study(study_name="halves/killed/encoder", storage=killed.studies_url)
    complete = study.get_trials(states=(TrialState.COMPLETE,))
    assert len(complete) == 18
    assert len({json.dumps(trial.params, sort_keys=True) for trial in complete}) == 18
    assert not study.get_trials(states=(TrialState.RUNNING, TrialState.WAITING))
    expected, found = result_of(undisturbed), result_of(killed)
    found["arms"]["encoder"]["trials"] = [
        trial for trial in found["arms"]["encoder"]["trials"] if trial["state"] != "FAIL"
    ]
    assert found == expected


def test_random_draws_do_not_depend_on_the_number_of_workers(tmp_path):
    inputs.write_inputs(tmp_path)
    jobs = [
        sweep_job(
            tmp_path,
            f"with-{workers}",
            workers=workers,
            sampler=RandomSamplerConfig(kind="random"),
            space={"learning_rate": LogUniformSpace(kind="log_uniform", low=1e-4, high=1e-2)},
            num_trials=5,
            num_seeds=2,
        )
        for workers in (1, 2)
    ]
    figures = [run_sweep(job) for job in jobs]
    assert figures[0] == figures[1]
    assert result_of(jobs[0]) == result_of(jobs[1])
