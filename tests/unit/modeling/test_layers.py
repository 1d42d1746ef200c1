"""The last layer, computed where it is read, gives what the whole gives there: values, gradients and dropout."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tiny
from bertline.examples.packing import packed_batches
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.dropout import mask_keys
from bertline.modeling.initialization import initialize
from bertline.modeling.layers import EncoderLayer, gather_positions
from bertline.pretraining.module import PreTrainingLosses

VOCAB_SIZE, SEQUENCES, LENGTH, TARGETS = 40, 3, 12, 3
KINDS = ("eager", "plain", "sdpa")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def everywhere(layer, hidden_states, scope, positions):
    """The whole layer, and then the positions."""
    return gather_positions(layer(hidden_states, scope), positions)


def everywhere_packed(layer, hidden_states, scope, positions):
    return layer(hidden_states, scope).flatten(0, 1)[positions][None]


def padded() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    mask = torch.ones(SEQUENCES, LENGTH, dtype=torch.long)
    mask[1, 5:], mask[2, 2:] = 0, 0
    return {
        "input_ids": torch.randint(1, VOCAB_SIZE, mask.shape, generator=generator) * mask,
        "token_type_ids": (torch.arange(LENGTH) > 5).long() * mask,
        "attention_mask": mask,
        "masked_positions": torch.tensor([[2, 7, 11], [4, 1, 0], [1, 0, 0]]),
        "masked_labels": torch.tensor([[5, 9, 30], [7, 8, -100], [6, -100, -100]]),
        "next_sentence_labels": torch.tensor([0, 1, 1]),
    }


def packed() -> dict[str, torch.Tensor]:
    arrays = {name: values.numpy() for name, values in padded().items()}
    (batch,) = packed_batches(arrays, pad_id=0, max_targets=TARGETS, rows_per_batch=None)
    assert len(batch["input_ids"]) < SEQUENCES
    return {name: torch.from_numpy(np.asarray(values)) for name, values in batch.items()}


def losses_of(kind, dtype=torch.float64, *, dropout=0.0) -> PreTrainingLosses:
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = tiny.model_config(**rates, initializer_range=0.2)
    model = BertForPreTraining(config, vocab_size=VOCAB_SIZE, pad_token_id=0, attention=kind)
    initialize(model, config, seed=0)
    return PreTrainingLosses(model, tiny.mlm_nsp()).to(dtype)


def results(losses, batch):
    """Logits, losses and gradients."""
    torch.manual_seed(11)
    losses.zero_grad()
    output = losses.objective.output(losses.model, batch)
    torch.manual_seed(11)
    sums = losses(batch)
    (sums["mlm_loss"] + sums["nsp_loss"]).backward()
    gradients = {name: weight.grad.clone() for name, weight in losses.named_parameters()}
    return {"mlm": output.mlm_logits, "nsp": output.nsp_logits, **sums, **gradients}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("make_batch", [padded, packed])
@pytest.mark.parametrize(("kind", "dropout"), [*((kind, 0.0) for kind in KINDS), ("eager", 0.3), ("plain", 0.3)])
def test_pretraining_gives_what_the_whole_last_layer_gives(kind, dropout, make_batch, dtype, monkeypatch):
    losses, batch = losses_of(kind, dtype, dropout=dropout), make_batch()
    if dropout:  # the masks of a token are the same wherever it is computed
        tokens = torch.arange(batch["input_ids"].numel(), dtype=torch.int32) * 1000
        batch |= {"dropout_keys": mask_keys(5, 7), "dropout_tokens": tokens.view(batch["input_ids"].shape)}
    found = results(losses, batch)
    monkeypatch.setattr(EncoderLayer, "forward_at", everywhere)
    monkeypatch.setattr(EncoderLayer, "forward_packed_at", everywhere_packed)
    expected = results(losses, batch)
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    assert all(value.abs().max() > 0 for name, value in expected.items() if "correct" not in name)


@pytest.mark.parametrize("make_batch", [padded, packed])
def test_the_last_feed_forward_network_sees_no_position_that_is_not_read(make_batch):
    losses, batch = losses_of("plain"), make_batch()
    seen = []
    for layer in losses.model.bert.layers:
        layer.intermediate.register_forward_hook(lambda module, inputs, output: seen.append(output[..., 0].numel()))
    losses(batch)
    num_read = batch["masked_positions"].numel() + batch["next_sentence_labels"].numel()
    assert seen == [batch["input_ids"].numel(), num_read]
