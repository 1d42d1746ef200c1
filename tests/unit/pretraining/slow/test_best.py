"""The step with the lowest held-out loss is known, kept, and there for people when the run is over."""

from bertline.pretraining.run import run_pretraining
from bertline.training.checkpoints import CheckpointFolder


def test_a_best_step_that_nothing_is_left_of_is_forgotten(make_job, validated):
    """Step 20 took the place of step 10; then it was torn, and training resumes from between the two."""
    validated({0: 1.0, 10: 3.0, 20: 2.0, 30: 2.5})
    job = make_job()
    run_pretraining(job)
    folder = CheckpointFolder(job.checkpoints_folder, keep=3)
    assert folder.steps == [20, 24, 30]
    between = {**folder.load(20).state, "step": 16, "best": {"step": 10, "val/mlm_loss": 3.0, "max_length": 16}}
    folder.save(16, between)
    assert folder.steps == [16]
    # On a machine that rounds otherwise the figures differ a little: step 10 stays the lowest ever seen.
    validated({20: 3.2, 30: 3.1})
    run_pretraining(job)
    assert folder.load(30).state["best"]["step"] == 30
    assert not job.best_folder.exists()
