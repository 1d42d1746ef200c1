"""The model's parts: sizes, shapes, dropout, compiling, what is evaluated where."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from bertline.modeling.bert import BertForPreTraining, BertForSequenceClassification, BertModel
from bertline.modeling.config import ModelConfig
from bertline.modeling.initialization import initialize
from bertline.modeling.layers import gather_positions


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(1, 50, (3, 8), generator=generator)
    return input_ids, torch.zeros_like(input_ids), torch.ones_like(input_ids)


def test_the_vocabulary_is_scored_at_the_masked_positions_alone(config: ModelConfig) -> None:
    model = BertForPreTraining(config, vocab_size=50, pad_token_id=0).eval()
    initialize(model, config, seed=0)
    positions = torch.tensor([[1, 5], [7, 0], [2, 2]])
    everywhere = torch.arange(8).expand(3, -1)
    with torch.no_grad():
        chosen = model(*inputs(), positions)
        whole = model(*inputs(), everywhere)
    assert chosen.mlm_logits.shape == (3, 2, 50)
    expected = gather_positions(whole.mlm_logits, positions)
    torch.testing.assert_close(chosen.mlm_logits, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(chosen.nsp_logits, whole.nsp_logits)


def test_dropout_is_on_in_training_alone(config: ModelConfig) -> None:
    model = BertForSequenceClassification(config, vocab_size=50, pad_token_id=0, num_labels=3, classifier_dropout=0.5)
    initialize(model, config, seed=0)
    model.eval()
    assert torch.equal(model(*inputs()), model(*inputs()))
    model.train()
    assert not torch.equal(model(*inputs()), model(*inputs()))


@pytest.mark.parametrize("where", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_dropout_alone_has_an_effect(config: ModelConfig, where: str) -> None:
    probabilities = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, where: 0.5}
    config = dataclasses.replace(config, initializer_range=0.3, **probabilities)
    model = BertModel(config, vocab_size=50, pad_token_id=0)
    initialize(model, config, seed=0)
    assert not torch.equal(model(*inputs()).pooled, model(*inputs()).pooled)


def test_the_whole_model_is_one_graph(config: ModelConfig) -> None:
    """A graph break would cost a good part of the compiled speed; `fullgraph` raises at the first."""
    model = BertForPreTraining(config, vocab_size=50, pad_token_id=0).eval()
    initialize(model, config, seed=0)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    positions = torch.tensor([[1, 5], [7, 0], [2, 2]])
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs(), positions), model(*inputs(), positions))


@pytest.mark.parametrize("attention", ["eager", "plain", "sdpa"])
@pytest.mark.parametrize("num_hidden_layers", [1, 3])
def test_the_first_position_alone_is_what_it_is_among_all(
    config: ModelConfig, attention: str, num_hidden_layers: int
) -> None:
    config = dataclasses.replace(config, num_hidden_layers=num_hidden_layers, initializer_range=0.3)
    model = BertModel(config, vocab_size=50, pad_token_id=0, attention=attention).double().eval()
    initialize(model, config, seed=0)
    input_ids, token_type_ids, attention_mask = inputs()
    attention_mask[1, 5:] = 0

    def outcome(pooled: torch.Tensor) -> list[torch.Tensor]:
        model.zero_grad()
        pooled.square().sum().backward()
        return [pooled.detach(), *(weight.grad.clone() for weight in model.parameters())]

    for mask in (attention_mask, None):
        whole = outcome(model(input_ids, token_type_ids, mask).pooled)
        alone = outcome(model.forward_pooled(input_ids, token_type_ids, mask))
        for expected, found in zip(whole, alone, strict=True):
            # Softmax is always taken in fp32, which is what the tolerance is for.
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
