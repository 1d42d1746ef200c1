"""`runtime.profile`: a few steps are looked at and nothing else changes."""

from bertline.pretraining.run import run_pretraining
from bertline.training.checkpoints import CheckpointFolder


def test_a_run_too_short_for_a_profile_says_so(make_job, capsys):
    job = make_job(runtime__profile=True, pretrain__max_steps=2)
    run_pretraining(job)
    assert "2 steps are left, too few for a profile, which needs 3" in capsys.readouterr().err
    assert not job.profile_folder.exists()
    assert CheckpointFolder(job.checkpoints_folder, keep=1).load_newest().step == 2
