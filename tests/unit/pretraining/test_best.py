"""The step with the lowest held-out loss is known, kept, and there for people when the run is over."""

import math

import pytest
import pytorch_lightning as pl

from bertline.foundation.manifests import read_manifest
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.plan import Plan
from bertline.pretraining.probes import BestStep
from bertline.pretraining.run import run_pretraining
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import assert_same_weights
from tiny import load_pretraining_model

PHASES = [
    PhaseConfig(steps=20, max_length=16, global_batch_size=8),
    PhaseConfig(steps=20, max_length=24, global_batch_size=8),
]


class Given:
    """A validation with these losses."""

    every_steps = 5

    def __init__(self, losses):
        self.losses = losses

    def probe(self, step):
        return {"val/mlm_loss": self.losses[step], "val/mlm_accuracy": 0.5}

    def keep_up_to(self, step):
        """Has no records."""


def best_after(losses, *, best=None) -> BestStep:
    best = best or BestStep(Given(losses), Plan(PHASES, 40), judged_by="mlm_loss")
    for step in losses:
        assert best.probe(step)["val/mlm_loss"] is losses[step]
    return best


def test_the_lowest_loss_of_trained_steps_is_the_best():
    assert best_after({0: 1.0, 5: 4.0, 10: 3.0, 15: 3.5, 20: 3.0}).best == {
        "step": 10,
        "val/mlm_loss": 3.0,
        "max_length": 16,
    }


def test_nothing_is_best_before_anything_was_trained_and_measured():
    assert best_after({0: 1.0}).best is None
    assert best_after({0: 1.0, 5: math.nan}).best is None


def test_a_loss_that_is_no_number_is_never_the_best():
    assert best_after({5: 4.0, 10: math.nan, 15: math.inf}).step == 5


def test_another_length_is_another_measure():
    assert best_after({20: 3.0, 25: 5.0, 30: 4.0, 35: 6.0}).best == {
        "step": 30,
        "val/mlm_loss": 4.0,
        "max_length": 24,
    }
    assert best_after({20: 3.0, 25: math.nan}).step == 20


def test_it_goes_on_from_a_checkpoint():
    first = best_after({5: 4.0, 10: 3.0})
    second = BestStep(Given({15: 3.5, 20: 2.0}), Plan(PHASES, 40), judged_by="mlm_loss")
    second.best = first.best
    second.probe(15)
    assert second.step == 10
    second.probe(20)
    assert second.step == 20


def weights_of(job, step):
    return CheckpointFolder(job.checkpoints_folder, keep=1).load(step).state["model"]


def test_the_best_step_of_a_run_is_kept_and_its_model_is_beside_the_result(make_job, validated, capsys):
    validated({0: 1.0, 10: 3.0, 20: 4.0, 30: 3.5})
    job = make_job(pretrain__keep_checkpoints=1)
    run_pretraining(job)
    # No checkpoint was due after step 10 (they are every 8), but that was the best.
    assert CheckpointFolder(job.checkpoints_folder, keep=1).steps == [10, 30]
    assert_same_weights(load_pretraining_model(job.best_folder).state_dict(), weights_of(job, 10))
    assert_same_weights(load_pretraining_model(job.result_folder).state_dict(), weights_of(job, 30))
    manifest = read_manifest(job.result_folder, kind="pretrain", format_version=1)
    assert manifest["best"] == {"step": 10, "val/mlm_loss": 3.0, "max_length": 16}
    assert f"lowest (3.0000) after step 10; that model is in {job.best_folder}" in capsys.readouterr().out


def test_where_the_last_step_is_the_best_the_result_is_all_there_is(make_job, validated):
    validated({0: 1.0, 10: 3.0, 20: 2.0, 30: 1.5})
    job = make_job(pretrain__keep_checkpoints=1)
    run_pretraining(job)
    assert CheckpointFolder(job.checkpoints_folder, keep=1).steps == [30]
    assert not job.best_folder.exists()


class Crash(pl.Callback):
    """Ends the process's part in the run, unsaved, after a step."""

    def __init__(self, step):
        self.step = step

    def on_train_batch_end(self, trainer, module, *batch):
        if module.finished_steps == self.step:
            raise RuntimeError("crashed")


def test_a_run_that_goes_on_knows_what_was_best_before(make_job, validated):
    validated({0: 1.0, 10: 3.0, 20: 4.0, 30: 3.5})
    job = make_job(pretrain__keep_checkpoints=1)
    for step in (17, 25):
        with pytest.raises(RuntimeError, match="crashed"):
            run_pretraining(job, callbacks=[Crash(step)])
    assert CheckpointFolder(job.checkpoints_folder, keep=1).steps == [10, 24]
    run_pretraining(job)
    assert CheckpointFolder(job.checkpoints_folder, keep=1).steps == [10, 30]
    assert_same_weights(load_pretraining_model(job.best_folder).state_dict(), weights_of(job, 10))
