"""Promises of pretraining that need processes: killed or stopped and started again, and shared by two ranks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import pretraining_processes as processes
from bertline.pretraining.job import PretrainJob
from pretraining_inputs import assert_ended_as, newest_checkpoint, pretrain_job, write_inputs
from rank_curves import assert_same_curves

CHANGES = {
    # With dropout, over two phases; the second is another length and another batch.
    "pretrain__phases": [
        {"steps": 12, "max_length": 16, "global_batch_size": 8},
        {"steps": 12, "max_length": 24, "global_batch_size": 6},
    ],
    "pretrain__checkpoint_every_steps": 4,
    "pretrain__validate_every_steps": 6,
    "pretrain__mask_predictions": {"every_steps": 9, "num_guesses": 3, "sentences": ["the [MASK] sat."]},
    "runtime__micro_batch_size": 3,
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder, lengths=(16, 24))
    return folder


@pytest.fixture(scope="module")
def alone(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> PretrainJob:
    """The job of the run that is left alone."""
    run_folder = tmp_path_factory.mktemp("runs") / "alone"
    processes.finish(processes.start(inputs, run_folder, CHANGES))
    return pretrain_job(inputs, run_folder, **CHANGES)


def test_killed_as_it_saves_computes_and_validates_it_ends_as_if_left_alone(inputs, alone, tmp_path) -> None:
    job = pretrain_job(inputs, tmp_path / "killed", **CHANGES)
    for moment, count in (("save", 1), ("gradients", 7), ("replace", 3), ("validation", 1), ("save", 2)):
        process = processes.start(inputs, job.run_folder, CHANGES, before=processes.kill_at(moment, count))
        process.join(timeout=300)
        assert process.exitcode == -signal.SIGKILL, (moment, count)
    processes.finish(processes.start(inputs, job.run_folder, CHANGES))
    assert_ended_as(alone, job)


def test_ctrl_c_saves_after_the_step_and_the_next_start_ends_as_if_left_alone(inputs, alone, tmp_path) -> None:
    job, held = pretrain_job(inputs, tmp_path / "stopped", **CHANGES), tmp_path / "held"
    process = processes.start(inputs, job.run_folder, CHANGES, before=processes.hold_at_step(14, held))
    processes.wait_for((tmp_path / "held.0").exists, process)
    os.kill(process.pid, signal.SIGINT)
    held.touch()
    process.join(timeout=300)
    assert process.exitcode == 1
    assert newest_checkpoint(job) == 15
    assert "pretraining was stopped and saved after step 15 of 24" in processes.output_of(job.run_folder).read_text()
    processes.finish(processes.start(inputs, job.run_folder, CHANGES))
    assert_ended_as(alone, job)


def test_two_ranks_give_the_curve_of_one(tmp_path: Path) -> None:
    assert_same_curves(tmp_path, [2], {}, rel=1e-3)
