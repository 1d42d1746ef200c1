"""A tiny encoder folder, and jobs that fine-tune it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bertline.finetuning import module as parts
from finetuning_fixtures import encoder, inputs, job_of, machine, tokenizer  # noqa: F401
from killed_runs import KilledError, assert_same, ended, job_of_kind


@pytest.fixture
def saving_each_step(monkeypatch):
    monkeypatch.setattr(parts, "_SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(parts, "_SHARE_OF_SAVING", 1e9)


@pytest.fixture
def assert_resumes(saving_each_step, tmp_path):
    """Kill a run of a kind at three places: it ends in the same weights, to the bit."""

    def check(name, **changes):
        job = job_of_kind(tmp_path, name, **changes)
        expected, num_steps = ended(job)
        job, left, told = replace(job, checkpoints=tmp_path / "run"), set(), []
        for after in (1, 2, 2):  # more steps, in several epochs
            with pytest.raises(KilledError):
                ended(job, after)
            left |= {path.name for path in job.checkpoints.glob("step-*.pt")}
        outcome, num_left = ended(job, told=told)
        assert_same(outcome, expected)
        assert num_left == num_steps - 5
        assert tuple(told) == outcome[1]  # a pruner is told what it was told before
        assert left == {f"step-{step:08d}.pt" for step in (1, 3, 5)}

    return check
