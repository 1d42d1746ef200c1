"""Every optimizer and schedule trains and resumes exactly from a checkpoint."""

import shutil

import pytest
import torch

from bertline.pretraining.run import run_pretraining
from pretraining_inputs import curve, newest_state

ADAM = {"lr": 5e-3, "beta1": 0.9, "beta2": 0.98, "eps": 1e-6, "weight_decay": 0.01, "max_grad_norm": 1.0}
OPTIMIZERS = {
    "lamb": {**ADAM, "kind": "lamb", "lr": 0.02},
    "muon": {**ADAM, "kind": "muon", "momentum": 0.95, "adamw_lr": 1e-2},
}
STABLE = {"kind": "wsd", "num_warmup_steps": 5, "num_decay_steps": 10, "final_fraction": 0.1, "decay": "1-sqrt"}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_resumed_run_ends_in_the_same_bits(make_job, kind, precision):
    changes = {"optimizer": OPTIMIZERS[kind], "schedule": STABLE, "pretrain__precision": precision}
    alone, stopped = make_job("alone", **changes), make_job("stopped", **changes)
    run_pretraining(alone)
    shutil.copytree(alone.run_folder, stopped.run_folder)
    newest = [*stopped.checkpoints_folder.glob("step-00000030*"), *stopped.checkpoints_folder.glob("step-00000024*")]
    assert len(newest) == 4
    for path in newest:
        path.unlink()
    assert newest_state(stopped)["step"] < 24
    run_pretraining(stopped)
    expected, found = newest_state(alone), newest_state(stopped)
    assert found["step"] == 30
    for name, tensor in expected["model"].items():
        assert torch.equal(found["model"][name], tensor), name
    for index, state in expected["optimizer"]["state"].items():
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(found["optimizer"]["state"][index][name]), torch.as_tensor(value)), name
    assert curve(stopped) == curve(alone)


@pytest.mark.parametrize("kind", ["adamw", *OPTIMIZERS])
def test_training_lowers_the_loss(make_job, kind):
    phases = [{"steps": 100, "max_length": 16, "global_batch_size": 16}]
    no_dropout = {"model__hidden_dropout_prob": 0.0, "model__attention_probs_dropout_prob": 0.0}
    job = make_job(
        optimizer=OPTIMIZERS.get(kind, {**ADAM, "kind": kind}), schedule=STABLE, pretrain__phases=phases, **no_dropout
    )
    run_pretraining(job)
    losses = [metrics["train/mlm_loss"] for _, metrics in curve(job) if "train/mlm_loss" in metrics]
    assert losses[-1] < losses[0] - 0.2
