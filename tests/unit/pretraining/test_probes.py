"""Probes of a run: held-out losses, and the guesses for fixed blanks."""

import numpy as np
import pytest
import torch

import tiny
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import read_json_lines
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.initialization import initialize
from bertline.pretraining.config import MaskPredictionsConfig
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.plan import Plan
from bertline.pretraining.probes import MaskPredictionProbe, ValidationProbe
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.training import train_byte_bpe
from pretraining_inputs import losses_of


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


def test_a_sentence_longer_than_the_model_is_an_error(make_probe):
    with pytest.raises(ConfigError, match=r"mask_predictions\.sentences.*positions for 32"):
        make_probe("[MASK] " + "cat " * 40)
