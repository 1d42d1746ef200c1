"""Packed linear layers give what the plain ones give, and leave the model as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import tiny
from bertline.modeling.bert import BertModel
from bertline.modeling.initialization import initialize
from bertline.modeling.layers import packed_linears


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_packed_layers_compute_the_same_and_are_unpacked_afterwards(activation: str) -> None:
    config = replace(tiny.model_config(), hidden_act=activation)
    model = BertModel(config, vocab_size=50, pad_token_id=0, attention="sdpa").eval()
    initialize(model, config, seed=1)
    ids = torch.randint(1, 50, (3, 7), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(7) < torch.tensor([[7], [4], [1]])).long()
    before = [type(module) for module in model.modules()]
    keys = list(model.state_dict())
    with torch.no_grad():
        plain = model(ids, torch.zeros_like(ids), mask)
        with packed_linears(model) as packed:
            fast = model(ids, torch.zeros_like(ids), mask)
            first = model.forward_pooled(ids, torch.zeros_like(ids), mask)
            inside = [type(module) for module in model.modules()]
    torch.testing.assert_close(fast.hidden_states, plain.hidden_states, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(first, plain.pooled, atol=1e-5, rtol=1e-5)
    assert packed == (inside != before)
    assert [type(module) for module in model.modules()] == before
    assert list(model.state_dict()) == keys
