"""Probes of a run: held-out losses, the best step, and the guesses for fixed blanks."""

import math

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

import tiny
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import read_json_lines
from bertline.foundation.manifests import read_manifest
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.initialization import initialize
from bertline.pretraining.config import MaskPredictionsConfig, PhaseConfig
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.plan import Plan
from bertline.pretraining.probes import BestStep, MaskPredictionProbe, ValidationProbe, mask_predictions_text
from bertline.pretraining.run import run_pretraining
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.training import train_byte_bpe
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import assert_same_weights, losses_of
from tiny import load_pretraining_model


@pytest.fixture
def losses(make_job):
    return losses_of(make_job())


def validation_of(losses, job, max_sequences=100) -> ValidationProbe:
    return ValidationProbe(losses, job.examples_folder, Plan.of(job.pretrain), tiny.machine(), 5, max_sequences)


def test_figures_are_exact_sums_over_all_held_out_targets(losses, make_job):
    job = make_job()
    examples = MaskedExamples(job.examples_folder, "validation", 16)
    batch = {key: torch.from_numpy(value) for key, value in examples.batch(np.arange(len(examples)), epoch=0).items()}
    losses.eval()
    sums = losses(batch)
    targets = (batch["masked_labels"] != -100).sum()
    figures = validation_of(losses, job).probe(0)
    assert figures["val/mlm_loss"] == pytest.approx((sums["mlm_loss"] / targets).item(), rel=1e-6)
    assert figures["val/mlm_accuracy"] == pytest.approx((sums["mlm_correct"] / targets).item())
    assert figures["val/nsp_accuracy"] == pytest.approx((sums["nsp_correct"] / len(examples)).item())


def test_batch_size_does_not_matter(losses, make_job, monkeypatch):
    whole = validation_of(losses, make_job()).probe(0)
    monkeypatch.setattr("bertline.pretraining.probes._BATCH_TOKENS", 5 * 16)
    assert validation_of(losses, make_job()).probe(0) == pytest.approx(whole, rel=1e-6)


def test_the_same_sequences_with_the_same_masks_each_time(losses, make_job):
    probe = validation_of(losses, make_job(), max_sequences=7)
    assert probe.probe(5) == probe.probe(10)
    other_seed = validation_of(losses, make_job(pretrain__seed=99), max_sequences=7)
    assert other_seed.probe(5) == probe.probe(5)


def test_the_length_is_that_of_the_phase(losses, make_job):
    phases = [
        {"steps": 5, "max_length": 16, "global_batch_size": 8},
        {"steps": 5, "max_length": 24, "global_batch_size": 4},
    ]
    both = validation_of(losses, make_job(pretrain__phases=phases))
    long = validation_of(losses, make_job(pretrain__phases=phases[1:]))
    assert both.probe(5) != both.probe(6)
    assert both.probe(6) == long.probe(1)


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


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({0: 1.0, 5: 4.0, 10: 3.0, 15: 3.5, 20: 3.0}, {"step": 10, "val/mlm_loss": 3.0, "max_length": 16}),
        ({0: 1.0, 5: math.nan}, None),  # before the first step nothing was trained
        ({5: 4.0, 10: math.nan, 15: math.inf}, {"step": 5, "val/mlm_loss": 4.0, "max_length": 16}),
        ({20: 3.0, 25: 5.0, 30: 4.0, 35: 6.0}, {"step": 30, "val/mlm_loss": 4.0, "max_length": 24}),
    ],
)
def test_the_lowest_loss_of_trained_steps_at_the_newest_length_is_the_best(losses, expected):
    best = BestStep(Given(losses), Plan(PHASES, 40), judged_by="mlm_loss")
    for step in losses:
        assert best.probe(step)["val/mlm_loss"] is losses[step]
    assert best.record == expected


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


@pytest.fixture
def make_probe(make_job, tmp_path):
    def make(*sentences: str) -> MaskPredictionProbe:
        job = make_job()
        tokenizer = Tokenizer.load(job.tokenizer_folder)
        model = BertForPreTraining(job.model, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id)
        initialize(model, job.model, seed=0)
        config = MaskPredictionsConfig(every_steps=5, sentences=sentences, num_guesses=3)
        return MaskPredictionProbe(model, tokenizer, config, tmp_path / "mask_predictions.jsonl", tiny.machine())

    return make


def test_rows_of_the_embeddings_behind_the_tokens_are_not_guessed(make_probe, tmp_path):
    probe = make_probe("the [MASK] sat.")
    tokens = probe.tokenizer.vocab
    config = probe.model.bert.config
    probe.model = BertForPreTraining(config, vocab_size=len(tokens) + 30, pad_token_id=0)
    initialize(probe.model, config, seed=0)
    torch.nn.init.constant_(probe.model.mlm_head.bias[len(tokens) :], 50.0)
    probe.probe(5)
    (row,) = read_json_lines(tmp_path / "mask_predictions.jsonl")
    assert {token for token, _ in row["guesses"]} <= set(tokens)


def test_the_guesses_of_each_sentence_are_the_models_at_its_first_blank(make_probe, tmp_path):
    probe = make_probe("the [MASK] sat [MASK].", "the cat [MASK].")
    tokenizer, model = probe.tokenizer, probe.model
    ids = torch.tensor([[tokenizer.cls_id, *tokenizer.encode("the [MASK] sat [MASK]."), tokenizer.sep_id]])
    model.eval()
    logits = model(ids, torch.zeros_like(ids), torch.ones_like(ids), torch.tensor([[2]])).mlm_logits[0, 0]
    probe.probe(5)
    first, second = read_json_lines(tmp_path / "mask_predictions.jsonl")
    assert (first["step"], first["sentence"], second["sentence"]) == (5, *probe.config.sentences)
    probabilities, guesses = logits.softmax(-1).topk(3)
    assert [token for token, _ in first["guesses"]] == tokenizer.tokens(guesses.tolist())
    assert [share for _, share in first["guesses"]] == pytest.approx(probabilities.tolist(), abs=1e-6)


def test_the_blank_of_a_sentence_is_the_mask_of_any_tokenizer(make_probe):
    probe = make_probe()
    probe.tokenizer = train_byte_bpe(["the cat sat."], vocab_size=262, min_frequency=1)
    ids, position = probe._encode("the [MASK] sat.")
    assert ids[0, position] == probe.tokenizer.mask_id and (ids == probe.tokenizer.mask_id).sum() == 1
    assert ids[0, 0] == probe.tokenizer.cls_id and ids[0, -1] == probe.tokenizer.sep_id


def test_the_text_for_people_holds_what_the_records_hold(make_probe, tmp_path):
    probe = make_probe("the [MASK] sat.", "the cat [MASK].")
    for step in (0, 5, 10):
        probe.probe(step)
    text = (tmp_path / "mask_predictions.txt").read_text()
    assert text == mask_predictions_text(read_json_lines(tmp_path / "mask_predictions.jsonl"))
    first, second = text.split("\n\n")
    assert [line.split()[0] for line in first.splitlines()] == ["the", "10", "5", "0"]
    assert second.startswith("the cat [MASK].")
    with (tmp_path / "mask_predictions.jsonl").open("a") as handle:
        handle.write('{"step": 15, "sent')  # torn by a kill
    probe.keep_up_to(5)
    text = (tmp_path / "mask_predictions.txt").read_text()
    assert [line.split()[0] for line in text.split("\n\n")[0].splitlines()] == ["the", "5", "0"]


def test_a_sentence_longer_than_the_model_is_an_error(make_probe):
    with pytest.raises(ConfigError, match=r"mask_predictions\.sentences.*positions for 32"):
        make_probe("[MASK] " + "cat " * 40)
