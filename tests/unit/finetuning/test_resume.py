"""A run that is stopped or killed resumes, and ends as the undisturbed one."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from bertline.training.interruption import TrainingInterrupted
from killed_runs import KilledError, assert_same, ended, job_of_kind


@pytest.mark.parametrize(("name", "taught"), [("windows", False), ("retrieval", True)])
def test_a_run_killed_at_three_places_ends_in_the_same_weights(assert_resumes, name, taught):
    assert_resumes(name, taught=taught)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return job_of_kind(tmp_path_factory.mktemp("windows"), "windows", num_epochs=2)


@pytest.fixture
def job(windows, tmp_path):
    return replace(windows, checkpoints=tmp_path / "run")


def test_a_signal_saves_after_the_step_also_a_short_run(job):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        with pytest.raises(TrainingInterrupted, match="stopped and saved after step"):
            ended(job, 1, lambda number=number: os.kill(os.getpid(), number))
    outcome, num_losses = ended(job)
    expected, num_steps = ended(replace(job, checkpoints=None))
    assert_same(outcome, expected)
    assert num_losses == num_steps - 6


def test_a_run_of_less_than_a_minute_writes_nothing(job):
    ended(job)
    assert not job.checkpoints.exists()


def test_a_damaged_checkpoint_starts_from_the_first_step(job, saving_each_step, capsys):
    with pytest.raises(KilledError):
        ended(job, 2)
    (file,) = job.checkpoints.glob("*.pt")
    file.write_bytes(file.read_bytes()[:-1])
    assert_same(ended(job)[0], ended(replace(job, checkpoints=None))[0])
    assert "does not match its SHA-256" in capsys.readouterr().err
