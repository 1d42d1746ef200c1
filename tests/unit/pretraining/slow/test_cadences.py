"""A cadence of checkpoints in seconds: what it saves, and that it changes no weights."""

import pytest
import torch

from bertline.foundation.metrics_log import read_metrics
from bertline.pretraining.run import run_pretraining
from bertline.training.checkpoints import CheckpointFolder

CHANGES = {
    "pretrain__phases": [{"steps": 12, "max_length": 16, "global_batch_size": 8}],
    "pretrain__checkpoint_every_steps": 10,
    "pretrain__validate_every_steps": 2,
    "pretrain__keep_checkpoints": 20,
}


def finished(make_job, name, **seconds):
    """The steps of the checkpoints, those of the validations, and the weights."""
    job = make_job(name, **CHANGES, **seconds)
    run_pretraining(job)
    folder = CheckpointFolder(job.checkpoints_folder, keep=20)
    validated = [row.step for row in read_metrics(job.metrics_path) if "val/mlm_loss" in row.metrics]
    return set(folder.steps), validated, folder.load_newest().state["model"]


@pytest.fixture
def by_steps(make_job):
    return finished(make_job, "by_steps")


def test_a_checkpoint_is_saved_when_the_last_one_is_old(make_job, by_steps):
    saved, validated, weights = finished(make_job, "often", runtime__checkpoint_every_s=1e-6)
    assert saved == set(range(1, 13))
    assert validated == by_steps[1] == [0, 2, 4, 6, 8, 10, 12]
    assert all(torch.equal(weights[name], by_steps[2][name]) for name in weights)
    assert finished(make_job, "seldom", runtime__checkpoint_every_s=600.0)[0] == by_steps[0]
