"""Initial weights: the reference's distribution, a function of the seed."""

from __future__ import annotations

from collections.abc import Container

import pytest
import torch

import tiny
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.initialization import initialize

CONFIG = tiny.model_config()
# Standard deviation of a standard normal cut at 2: sqrt(1 - 4 phi(2) / (2 Phi(2) - 1)).
CUT_NORMAL_STD = 0.8796


def drawn(but: Container[str] = ()) -> BertForPreTraining:
    model = BertForPreTraining(CONFIG, vocab_size=3000, pad_token_id=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)  # whatever is forgotten shows
    initialize(model, CONFIG, seed=0, but=but)
    return model


def test_matrices_are_normal_cut_at_two_deviations() -> None:
    model = drawn()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            assert parameter.abs().max() <= 2 * 0.02 + 1e-7, name
    words = model.bert.embeddings.word_embeddings.weight[1:]
    assert words.mean().item() == pytest.approx(0, abs=3e-4)
    assert words.std().item() == pytest.approx(0.02 * CUT_NORMAL_STD, rel=0.01)
    within_one = (words.abs() < 0.02).float().mean().item()
    assert within_one == pytest.approx(0.6827 / 0.9545, abs=0.01)


def test_weights_are_the_same_in_every_version_of_torch() -> None:
    """Written down with torch 2.13, and met with 2.11."""
    weight = drawn().bert.layers[0].output.weight
    assert weight[0, :4].tolist() == pytest.approx([-0.0221560523, 0.0073925066, -0.0036605042, 0.0124443145])


def test_the_state_of_other_random_numbers_does_not_matter_and_stays() -> None:
    torch.manual_seed(1)
    first = drawn()
    torch.manual_seed(2)
    model = BertForPreTraining(CONFIG, vocab_size=3000, pad_token_id=0)
    state = torch.get_rng_state()
    initialize(model, CONFIG, seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    for a, b in zip(first.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_what_is_left_out_stays_and_the_others_are_drawn_as_ever() -> None:
    kept = {"nsp_head.weight", "bert.embeddings.word_embeddings.weight"}
    whole, part = drawn(), drawn(but=kept)
    for (name, ours), theirs in zip(part.named_parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, torch.full_like(ours, 7.0) if name in kept else theirs), name
