import dataclasses
import signal
import threading

import pytest
import pytorch_lightning as pl
import torch

from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import read_json_lines
from bertline.foundation.manifests import read_manifest
from bertline.foundation.metrics_log import read_metrics
from bertline.pretraining.run import run_pretraining
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import again, assert_same_weights, curve, stop_after, weights
from servers import wait_until
from tiny import load_pretraining_model


def test_a_run_gives_its_figures_and_a_folder_that_loads_and_is_not_trained_again(finished):
    before = weights(finished)
    figures = run_pretraining(finished)
    assert_same_weights(before, weights(finished))
    named = {"val/mlm_loss", "val/mlm_accuracy", "val/nsp_accuracy", "perf/tokens_per_s", "perf/mfu", "train_time_s"}
    assert named | {"perf/data_wait_fraction", "num_parameters"} <= figures.keys()
    assert figures["steps"] == 30 and figures["unigram_entropy"] == 4.0
    manifest = read_manifest(finished.result_folder, kind="pretrain", format_version=1)
    assert manifest["metrics"] == figures
    assert manifest["training"]["resolved"] == {"precision": "fp32"}
    model = load_pretraining_model(finished.result_folder)
    assert figures["num_parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert_same_weights(dict(model.state_dict()), before)
    assert_same_weights(load_pretraining_model(finished.latest_folder).state_dict(), before)
    names = {path.name for path in finished.result_folder.iterdir()}
    assert {"config.json", "model.safetensors", "vocab.txt", "manifest.json"} <= names
    assert {path.name for path in finished.logs if path.exists()} <= names


def test_metrics_and_mask_predictions_come_at_their_steps(finished):
    rows = list(read_metrics(finished.metrics_path))
    assert [row.step for row in rows if "val/mlm_loss" in row.metrics] == [0, 10, 20, 30]
    trained = [row for row in rows if "train/loss" in row.metrics]
    assert [row.step for row in trained] == [20, 30]
    assert set(trained[0].metrics) >= {"optim/lr", "optim/grad_norm", "perf/tokens_per_s", "train/mlm_accuracy"}
    assert [row["step"] for row in read_json_lines(finished.mask_predictions_path)] == [0, 15, 30]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_after_the_step_and_the_next_start_goes_on(make_job, finished, monkeypatch, number):
    job = make_job("stopped")
    stop_after(job, 15, monkeypatch, number=number)
    assert CheckpointFolder(job.checkpoints_folder, keep=1).load_newest().step == 15
    assert not job.result_folder.exists()
    run_pretraining(job)
    assert_same_weights(weights(finished), weights(job))
    assert curve(job) == curve(finished)
    assert read_json_lines(job.mask_predictions_path) == read_json_lines(finished.mask_predictions_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer__lr": 1e-3}, r"optimizer\.lr was 0\.005, is now 0\.001"),
        ({"pretrain__precision": "bf16"}, r"resolved\.precision was 'fp32', is now 'bf16'"),
    ],
)
def test_another_configuration_is_not_resumed(make_job, finished, change, message):
    with pytest.raises(ConfigError, match=message):
        run_pretraining(again(make_job, finished, **change))


def test_training_starts_from_a_given_checkpoint(make_job, finished):
    job = dataclasses.replace(make_job("continued", pretrain__max_steps=10), start_from_folder=finished.result_folder)
    run_pretraining(job)
    first, last = (
        next(row.metrics["val/mlm_loss"] for row in rows if "val/mlm_loss" in row.metrics)
        for rows in (list(read_metrics(job.metrics_path)), list(read_metrics(finished.metrics_path))[::-1])
    )
    assert first == pytest.approx(last, rel=1e-5)


def test_a_checkpoint_of_another_shape_is_an_error_with_both_figures(make_job, finished):
    job = make_job("continued", model__intermediate_size=64, pretrain__max_steps=10)
    with pytest.raises(ConfigError, match=r"model\.intermediate_size is 64, the checkpoint's is 32"):
        run_pretraining(dataclasses.replace(job, start_from_folder=finished.result_folder))


def test_examples_of_another_vocabulary_are_an_error(make_job, pretraining, tmp_path):
    pretraining.write_inputs(tmp_path / "own")
    vocabulary = tmp_path / "own" / "tokenizer" / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text() + "dog\n")
    (tmp_path / "own" / "tokenizer" / "tokenizer.json").unlink()
    job = pretraining.pretrain_job(tmp_path / "own", tmp_path / "run")
    with pytest.raises(ArtifactError, match="vocabulary of 61 tokens, .* has 62"):
        run_pretraining(job)


def test_training_continues_while_a_checkpoint_is_written_and_the_last_one_is_waited_for(make_job, monkeypatch):
    begun_at, ended_at = {}, {}
    save = CheckpointFolder.save

    def slow(folder, step, state):
        begun_at[step] = modules[0].finished_steps
        begun[step].set()
        if step == 16:
            wait_until(lambda: modules[0].finished_steps > 20)
        path = save(folder, step, state)
        ended_at[step] = modules[0].finished_steps
        return path

    monkeypatch.setattr(CheckpointFolder, "save", slow)
    modules, begun = [], {16: threading.Event(), 30: threading.Event()}
    job = make_job(pretrain__checkpoint_every_steps=16, pretrain__validate_every_steps=30)
    run_pretraining(job, callbacks=[Modules(modules, before_step_18=begun[16])])
    assert begun_at[16] - 16 <= 1
    assert 20 < ended_at[16] <= 30
    assert (ended_at[30], CheckpointFolder(job.checkpoints_folder, keep=9).steps) == (30, [16, 30])
    # The saved weights are those of the step, not those of the steps taken meanwhile.
    alone = make_job("alone", pretrain__checkpoint_every_steps=16, pretrain__validate_every_steps=30)
    monkeypatch.setattr(CheckpointFolder, "save", save)
    run_pretraining(alone)
    states = [CheckpointFolder(each.checkpoints_folder, keep=9).load(16).state["model"] for each in (job, alone)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


class Modules(pl.Callback):
    """Keeps the module; step 18 waits for an event, if one is given."""

    def __init__(self, modules, *, before_step_18=None):
        self.modules, self.before_step_18 = modules, before_step_18

    def on_train_start(self, trainer, module):
        self.modules.append(module)

    def on_train_batch_start(self, trainer, module, *batch):
        if module.finished_steps == 17 and self.before_step_18 is not None:
            assert self.before_step_18.wait(600)
