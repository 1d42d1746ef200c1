"""A cadence of checkpoints in seconds: what it saves, and that it changes no weights."""

from bertline.pretraining.run import run_pretraining
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import assert_same_weights, weights

CHANGES = {
    "pretrain__phases": [{"steps": 12, "max_length": 16, "global_batch_size": 8}],
    "pretrain__checkpoint_every_steps": 10,
    "pretrain__keep_checkpoints": 20,
}


def test_a_checkpoint_is_saved_when_the_last_one_is_old_and_the_weights_are_the_same(make_job):
    jobs = [make_job(str(every_s), **CHANGES, runtime__checkpoint_every_s=every_s) for every_s in (None, 1e-6, 600.0)]
    for job in jobs:
        run_pretraining(job)
    saved = [CheckpointFolder(job.checkpoints_folder, keep=20).steps for job in jobs]
    assert saved == [[10, 12], list(range(1, 13)), [10, 12]]
    assert_same_weights(weights(jobs[1]), weights(jobs[0]))
