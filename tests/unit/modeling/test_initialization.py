"""Initial weights: the reference's distribution, a function of the seed."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.config import ModelConfig
from bertline.modeling.initialization import initialize

# Standard deviation of a standard normal cut at 2: sqrt(1 - 4 phi(2) / (2 Phi(2) - 1)).
CUT_NORMAL_STD = 0.8796


def drawn(config: ModelConfig, seed: int = 0) -> BertForPreTraining:
    model = BertForPreTraining(config, vocab_size=3000, pad_token_id=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)  # whatever is forgotten shows
    initialize(model, config, seed=seed)
    return model


def test_matrices_are_normal_cut_at_two_deviations(config: ModelConfig) -> None:
    model = drawn(config)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            assert parameter.abs().max() <= 2 * 0.02 + 1e-7, name
    words = model.bert.embeddings.word_embeddings.weight[1:]
    assert words.mean().item() == pytest.approx(0, abs=3e-4)
    assert words.std().item() == pytest.approx(0.02 * CUT_NORMAL_STD, rel=0.01)
    within_one = (words.abs() < 0.02).float().mean().item()
    assert within_one == pytest.approx(0.6827 / 0.9545, abs=0.01)


def test_biases_are_zero_and_scales_one(config: ModelConfig) -> None:
    for module in drawn(config).modules():
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all()
        if isinstance(module, nn.LayerNorm | nn.Linear):
            assert (module.bias == 0).all()
    assert (drawn(config).mlm_head.bias == 0).all()


def test_the_embedding_of_padding_is_zero(config: ModelConfig) -> None:
    words = drawn(config).bert.embeddings.word_embeddings.weight
    assert (words[0] == 0).all()
    assert (words[1] != 0).any()


def test_weights_are_a_function_of_the_seed(config: ModelConfig) -> None:
    first, again, other = drawn(config), drawn(config), drawn(config, seed=1)
    for (name, a), b, c in zip(first.named_parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert a.ndim == 1 or not torch.equal(a, c), name


def test_the_state_of_other_random_numbers_does_not_matter_and_stays(config: ModelConfig) -> None:
    torch.manual_seed(1)
    first = drawn(config)
    torch.manual_seed(2)
    model = BertForPreTraining(config, vocab_size=3000, pad_token_id=0)
    state = torch.get_rng_state()
    initialize(model, config, seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    for a, b in zip(first.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_one_more_layer_leaves_the_others_as_they_are(config: ModelConfig) -> None:
    shallow = dict(drawn(config).named_parameters())
    deep = dict(drawn(dataclasses.replace(config, num_hidden_layers=3)).named_parameters())
    for name, parameter in shallow.items():
        assert torch.equal(parameter, deep[name]), name
