"""Workers that are killed at random moments change nothing, and neither does their number."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time

import pytest

import finetuning_inputs as inputs
import sweep_pieces
from bertline.foundation.errors import ConfigError, DataError
from bertline.sweep import workers as workers_module
from bertline.sweep.config import PlannedSamplerConfig
from bertline.sweep.run import run_sweep
from bertline.sweep.workers import join_sweep
from bertline.tasks.config import ChoiceSpace, LogUniformSpace
from fork_server import forked_workers
from servers import wait_until
from sweep_pieces import assert_each_done_once, result_of, studies_of

GRID = {
    "learning_rate": ChoiceSpace(kind="choice", values=(1e-3, 3e-3, 1e-2)),
    "batch_size": ChoiceSpace(kind="choice", values=(16.0, 32.0)),
    "num_epochs": ChoiceSpace(kind="choice", values=(1.0, 2.0, 3.0)),
}


def sweep_job(folder, name, *, workers, **changes):
    fields = {"space": GRID, "num_trials": 18, "num_seeds": 1, "random_weights_baseline": "never"}
    return inputs.sweep_job(
        folder,
        folder / name,
        sweep=inputs.sweep(**{**fields, **changes}),
        task=inputs.task(label_efficiency_rows=()),
        runtime=inputs.runtime(sweep_workers=workers, num_threads=None),
    )


def kill_helpers(job, moments, killed):
    """Kill a helper at each of some moments, without warning."""
    for num_finished in moments:
        while len(list((job.run_folder / "trials").glob("*.json"))) < num_finished:
            time.sleep(0.02)
        time.sleep(random.uniform(0, 0.3))
        helper = next(process for process in multiprocessing.active_children() if process.name.startswith("sweep-"))
        os.kill(helper.pid, signal.SIGKILL)
        killed.append(helper.pid)
        helper.join()


def test_a_grid_whose_workers_are_killed_ends_as_the_undisturbed_one(tmp_path, monkeypatch, capsys):
    forked_workers(monkeypatch)
    inputs.write_inputs(tmp_path)
    undisturbed = sweep_job(tmp_path, "undisturbed", workers=1)
    run_sweep(undisturbed)
    job, killed = sweep_job(tmp_path, "killed", workers=4), []
    killer = threading.Thread(target=kill_helpers, args=(job, (1, 4, 8), killed), daemon=True)
    killer.start()
    run_sweep(job)
    assert len(killed) == 3
    assert capsys.readouterr().err.count("ended with exit code -9; the others continue") == 3
    assert result_of(job) == result_of(undisturbed)
    assert_each_done_once(job)


@pytest.mark.parametrize("sampler", [PlannedSamplerConfig(kind="random"), PlannedSamplerConfig(kind="qmc")])
def test_planned_draws_do_not_depend_on_the_number_of_workers(tmp_path, monkeypatch, sampler):
    inputs.write_inputs(tmp_path)
    space = {"learning_rate": LogUniformSpace(kind="log_uniform", low=1e-4, high=1e-2)}
    jobs = [
        sweep_job(tmp_path, f"with-{workers}", workers=workers, sampler=sampler, space=space, num_trials=5, num_seeds=2)
        for workers in (1, 2)
    ]
    figures = [run_sweep(jobs[0])]
    fine_tune = workers_module.fine_tune

    def after_the_helper(*args, **options):
        wait_until(lambda: list((jobs[1].run_folder / "trials").glob("*.json")), every_s=0.02)
        return fine_tune(*args, **options)

    monkeypatch.setattr(workers_module, "fine_tune", after_the_helper)  # of this process alone, which leads
    figures.append(run_sweep(jobs[1]))
    assert figures[0] == figures[1]
    assert result_of(jobs[0]) == result_of(jobs[1])
    processes = {trial.user_attrs["process"] for study in studies_of(jobs[1]) for trial in study.trials}
    assert len(processes) == 2  # both took a share


def test_what_a_helper_fails_with_ends_the_sweep(tmp_path, monkeypatch):
    forked_workers(monkeypatch)
    inputs.write_inputs(tmp_path)
    monkeypatch.setattr(workers_module, "_help", sweep_pieces.fail)
    with pytest.raises(DataError, match="row 3 has no text"):
        run_sweep(sweep_job(tmp_path, "run", workers=2))


def test_a_sweep_without_any_helper_left_goes_on_and_a_task_of_an_array_notes_its_progress(tmp_path, monkeypatch):
    forked_workers(monkeypatch)
    monkeypatch.setenv("BERTLINE_JOIN", "7")
    inputs.write_inputs(tmp_path)
    monkeypatch.setattr(workers_module, "_help", sweep_pieces.die)
    run_sweep(sweep_job(tmp_path, "run", workers=2, num_trials=2))
    assert (tmp_path / "run" / "7.done").stat().st_size == 2 + 1  # two trials and a seed


def test_studies_in_a_file_are_not_shared_by_machines(tmp_path):
    inputs.write_inputs(tmp_path)
    with pytest.raises(ConfigError, match="SQLite file, which several machines cannot share"):
        join_sweep(sweep_job(tmp_path, "run", workers=1), is_led=lambda: True)
