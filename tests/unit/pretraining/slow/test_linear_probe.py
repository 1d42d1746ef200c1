from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import probing_inputs as language
import tiny
from bertline.examples.store import ExampleStore
from bertline.modeling.bert import BertForPreTraining, EncoderOutput
from bertline.modeling.initialization import initialize
from bertline.pretraining.probes import LinearProbe, configured_probes, probing_sentences
from bertline.pretraining.run import run_pretraining
from pretraining_inputs import assert_resumes_to_the_same_bits, assert_same_weights, curve, weights

SHIFT, ODD = "probe/bigram_shift_accuracy", "probe/odd_word_accuracy"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Inputs in the made-up language."""
    folder = tmp_path_factory.mktemp("language")
    language.write_language(folder)
    return folder


@pytest.fixture(scope="module")
def sentences(folder):
    store = ExampleStore.open(folder / "examples", "validation", language.LENGTH)
    return probing_sentences(store, language.TOKENIZER, max_sentences=750)


@pytest.fixture
def make_job(pretraining, folder, tmp_path):
    def make(run: str = "run", **changes):
        phases = [{"steps": 20, "max_length": language.LENGTH, "global_batch_size": 8}]
        probe = {"every_steps": 5, "max_sentences": 120}
        changes = {"pretrain__phases": phases, "pretrain__linear_probe": probe, **changes}
        return pretraining.pretrain_job(folder, tmp_path / run, **changes)

    return make


def tiny_model(seed: int = 0) -> BertForPreTraining:
    config = tiny.model_config(max_position_embeddings=language.LENGTH)
    model = BertForPreTraining(config, vocab_size=len(language.TOKENS), pad_token_id=0)
    initialize(model, config, seed=seed)
    return model


def probe_of(model, sentences, **machine) -> LinearProbe:
    return LinearProbe(model, language.TOKENIZER, sentences, machine=tiny.machine(**machine), every_steps=5)


class HandMade(nn.Module):
    """An encoder whose vectors say which word stands at a place, or which kind follows which."""

    def __init__(self, *, reads_order: bool) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=len(language.TOKENS))
        self.reads_order = reads_order

    def forward(self, input_ids, token_type_ids, attention_mask) -> EncoderOutput:
        meant = input_ids
        if self.reads_order:
            kinds = (input_ids - language.FIRST_WORD) % 3
            meant = (kinds.roll(-1, dims=1) - kinds) % 3
        states = nn.functional.one_hot(meant, self.config.hidden_size).float()
        return EncoderOutput(states, torch.zeros(1), states)


def test_an_encoder_that_knows_the_order_is_found_out_and_one_that_counts_words_is_at_chance(sentences):
    knows = probe_of(SimpleNamespace(bert=HandMade(reads_order=True)), sentences).probe(0)
    counts = probe_of(SimpleNamespace(bert=HandMade(reads_order=False)), sentences).probe(0)
    assert knows[SHIFT] > 0.9
    assert counts[SHIFT] == pytest.approx(0.5, abs=0.12)  # three standard errors of 166 sentences
    assert knows[ODD] > 0.7


def test_vectors_are_means_over_each_sentence_whatever_it_is_batched_with(sentences, monkeypatch):
    model = tiny_model()
    probe = probe_of(model, sentences)
    vectors = probe._vectors()
    model.eval()
    for index in (0, 1, len(sentences.kinds) - 1):
        ids = torch.tensor([probe._ids[index]])
        alone = model.bert(ids, torch.zeros_like(ids), torch.ones_like(ids)).hidden_states.mean(1)[0]
        np.testing.assert_allclose(vectors[index], alone.detach().numpy(), atol=1e-5)
    monkeypatch.setattr("bertline.pretraining.probes._BATCH_TOKENS_ON_CPU", 1)
    np.testing.assert_allclose(vectors, probe._vectors(), atol=1e-5)


def test_a_probe_says_the_same_again_and_leaves_the_model_as_it_was(sentences):
    model = tiny_model().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    probe = probe_of(model, sentences)
    assert probe.probe(5) == probe.probe(10)
    assert torch.equal(state, torch.get_rng_state())
    assert all(module.training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_vectors_that_are_no_numbers_are_not_measured(sentences):
    model = tiny_model()
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[language.FIRST_WORD] = float("nan")
    assert probe_of(model, sentences).probe(0) == {}


def test_a_run_measures_at_its_steps_resumes_with_one_clean_curve_and_trains_as_without(make_job, monkeypatch):
    probed, alone = make_job("probed"), make_job("alone", pretrain__linear_probe=None)
    figures = assert_resumes_to_the_same_bits(probed, make_job("stopped"), LinearProbe, 10, monkeypatch)
    run_pretraining(alone)
    measured = {step: metrics[SHIFT] for step, metrics in curve(probed) if SHIFT in metrics}
    assert list(measured) == [0, 5, 10, 15, 20]
    assert figures[SHIFT] == measured[20] and ODD in figures
    assert not any(key.startswith("probe/") for _, metrics in curve(alone) for key in metrics)
    assert_same_weights(weights(probed), weights(alone))


def test_text_too_short_to_probe_with_is_said_and_stops_nothing(make_job, capsys):
    job = make_job(pretrain__linear_probe={"every_steps": 5, "max_sentences": 59})
    assert configured_probes(job, tiny_model(), language.TOKENIZER, tiny.machine()) == []
    assert "59 sentences" in capsys.readouterr().err
    assert len(configured_probes(make_job(), tiny_model(), language.TOKENIZER, tiny.machine())) == 1
