"""Dropout: the right share, the right mean, independent places, and the same compiled."""

import dataclasses

import pytest
import torch

import tiny
from bertline.modeling.bert import BertForSequenceClassification
from bertline.modeling.dropout import Dropout, dropout, random_levels

ONES = torch.ones(200, 1003)


@pytest.mark.parametrize("prob", [0.1, 0.5, 0.9])
def test_the_share_is_dropped_and_the_mean_stays(prob):
    torch.manual_seed(0)
    dropped = dropout(ONES, prob)
    assert (dropped == 0).float().mean().item() == pytest.approx(prob, abs=0.005)
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)
    kept = dropped[dropped != 0]
    assert (kept == kept[0]).all() and kept[0].item() == pytest.approx(1 / (1 - prob), rel=1e-3)


def test_each_element_is_dropped_by_itself():
    torch.manual_seed(0)
    is_dropped = (dropout(ONES, 0.1) == 0).float()
    # Neither a neighbour, nor the element below, tells anything of another.
    for shift in (1, 2, 3, 4, 16, 1003):
        both = (is_dropped.flatten()[shift:] * is_dropped.flatten()[:-shift]).mean().item()
        assert both == pytest.approx(0.01, abs=0.002)
    again = (dropout(ONES, 0.1) == 0).float()
    assert (is_dropped * again).mean().item() == pytest.approx(0.01, abs=0.002)


def test_all_levels_are_as_likely():
    torch.manual_seed(0)
    levels = random_levels(torch.empty(4_000_000), 0).long()
    for bits in (28, 0):  # the highest four, the lowest four
        counts = torch.bincount(((levels + (1 << 31)) >> bits) & 15, minlength=16)
        assert counts.float().div(250_000).sub(1).abs().max() < 0.01
    assert levels.unique().numel() == levels.numel()  # one to one


@pytest.mark.parametrize("places", [None, torch.arange(0, 900, 3, dtype=torch.int32).view(30, 10).T])
def test_the_number_of_threads_does_not_change_the_levels(places, monkeypatch):
    """They are computed by NumPy on few threads and by PyTorch on many."""
    drawn = []
    before = None if places is None else places.clone()
    for threads in (1, 8):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        torch.manual_seed(3)
        drawn.append(random_levels(torch.empty(10, 30), 5, places))
    assert torch.equal(*drawn)
    assert places is None or torch.equal(places, before)


def test_tensors_drawn_one_after_the_other_share_nothing():
    torch.manual_seed(0)
    drawn = torch.stack([dropout(torch.ones(64), 0.5) for _ in range(4096)]) == 0
    # Each place over the draws, and each draw over the places, is dropped as often as a coin would say.
    assert drawn.float().mean(0).sub(0.5).abs().max() < 5 * 0.5 / 64
    assert drawn.float().mean(1).sub(0.5).abs().max() < 5 * 0.5 / 8
    correlations = torch.corrcoef(drawn.float().T).fill_diagonal_(0)
    assert correlations.abs().max() < 5 / 64


def test_the_gradient_passes_where_the_value_did():
    values = torch.ones(50, 50, requires_grad=True)
    dropped = dropout(values, 0.3)
    dropped.sum().backward()
    assert torch.equal(values.grad, dropped.detach())


def test_the_seed_decides():
    def drawn(seed):
        torch.manual_seed(seed)
        return dropout(ONES, 0.1)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_outside_training_and_at_zero_nothing_is_done_and_nothing_drawn():
    before = torch.random.get_rng_state()
    assert Dropout(0.5).eval()(ONES) is ONES
    assert Dropout(0.0)(ONES) is ONES
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("num_layers", [1, 2, 12])
def test_the_site_of_each_dropout_follows_from_its_layer(num_layers):
    """A site decides the masks, so a changed number would change every trained weight."""
    config = dataclasses.replace(tiny.model_config(), num_hidden_layers=num_layers)
    model = BertForSequenceClassification(config, vocab_size=20, pad_token_id=0, num_labels=2, classifier_dropout=0.1)
    assert model.bert.embeddings.dropout.site == 0
    for number, layer in enumerate(model.bert.layers):
        assert layer.attention_dropout.site == 3 * number + 1
        assert layer.attention_output_dropout.site == 3 * number + 2
        assert layer.output_dropout.site == 3 * number + 3
    assert model.dropout.site == 3 * num_layers + 1
