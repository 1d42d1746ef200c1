"""Dropout: the right share, the right mean, independent places, and the same compiled."""

import dataclasses

import pytest
import torch

import tiny
from bertline.modeling.bert import BertForSequenceClassification
from bertline.modeling.dropout import Dropout, TokenMasks, dropout, mask_keys, token_numbers

ONES = torch.ones(200, 1003)


@pytest.mark.parametrize("prob", [0.1, 0.5, 0.9])
def test_the_share_is_dropped_and_the_mean_stays(prob):
    torch.manual_seed(0)
    dropped = dropout(ONES, prob)
    assert (dropped == 0).float().mean().item() == pytest.approx(prob, abs=0.005)
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)
    kept = dropped[dropped != 0]
    assert (kept == kept[0]).all() and kept[0].item() == pytest.approx(1 / (1 - prob), rel=1e-3)


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


def masks_of(sequences, positions, *, seed=0, max_length=64) -> TokenMasks:
    """Of tokens at these positions of these sequences, which are broadcast to [B, S]."""
    keys = mask_keys(seed, num_sites=3)
    return TokenMasks(keys, token_numbers(keys, torch.as_tensor(sequences), torch.as_tensor(positions), max_length))


def dropped_states(masks, *, site=1, prob=0.1, hidden_size=96) -> torch.Tensor:
    module = Dropout(prob)
    module.site = site
    ones = torch.ones_like(masks.of_states(hidden_size, site), dtype=torch.float32)
    return (module(ones, masks=masks) == 0).float()


def dropped_probabilities(masks, queries=None, *, site=1, prob=0.1, num_heads=4) -> torch.Tensor:
    places = (queries or masks).of_probabilities(masks, num_heads, site)
    return (dropout(torch.ones(places.shape), prob, site=site, places=places, keys=masks.keys) == 0).float()


DROPPED = {"states": dropped_states, "probabilities": dropped_probabilities}
ROWS, COLUMNS = torch.arange(40)[:, None], torch.arange(64)


@pytest.mark.parametrize("dropped", DROPPED.values(), ids=DROPPED)
def test_masks_of_tokens_have_the_rate_and_tell_nothing_of_one_another(dropped):
    """Of about 240,000 and 650,000 elements: bounds are 5 standard deviations of independent coins."""
    base = masks_of(ROWS, COLUMNS)
    found = dropped(base)
    bound = 5 * (0.1 * 0.9 / found.numel()) ** 0.5
    assert abs(found.mean() - 0.1) < bound
    shifted = {f"dimension {dim}": found.roll(1, dim) for dim in range(found.dim())}
    others = {
        **shifted,
        "another site": dropped(base, site=2),
        "another step": dropped(masks_of(ROWS, COLUMNS, seed=1)),
        "other sequences": dropped(masks_of(ROWS + 40, COLUMNS)),
    }
    if found.dim() == 4:
        others["query and key exchanged"] = found.transpose(2, 3).clone()
        diagonal = torch.arange(64)
        others["query and key exchanged"][:, :, diagonal, diagonal] = found.roll(1, 0)[:, :, diagonal, diagonal]
    for name, other in others.items():
        correlation = ((found - 0.1) * (other - 0.1)).mean() / (0.1 * 0.9)
        assert abs(correlation) < 7 / found.numel() ** 0.5, name  # two elements of a pair are counted twice


def test_a_token_has_its_mask_in_any_row_and_at_any_place_of_it():
    whole = masks_of(ROWS, COLUMNS)
    sequences, positions = torch.tensor([[3] * 20 + [7] * 12]), torch.tensor([[*range(20), *range(12)]])
    packed = masks_of(sequences, positions)
    states = dropped_states(whole)
    assert torch.equal(dropped_states(packed)[0], torch.cat([states[3, :20], states[7, :12]]))
    probabilities, of_row = dropped_probabilities(whole), dropped_probabilities(packed)
    assert torch.equal(of_row[0, :, :20, :20], probabilities[3, :, :20, :20])
    assert torch.equal(of_row[0, :, 20:, 20:], probabilities[7, :, :12, :12])
