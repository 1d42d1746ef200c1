"""The model's parts: sizes, shapes, dropout, compiling, what is evaluated where."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import tiny
from bertline.modeling.bert import BertForMaskedLM, BertForPreTraining, BertModel
from bertline.modeling.config import flops_per_token
from bertline.modeling.initialization import initialize
from bertline.modeling.losses import masked_lm_loss_sum


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(1, 50, (3, 8), generator=generator)
    return input_ids, torch.zeros_like(input_ids), torch.ones_like(input_ids)


@pytest.mark.parametrize("attention", ["eager", "plain", "sdpa"])
@pytest.mark.parametrize("num_hidden_layers", [1, 3])
def test_the_first_position_alone_is_what_it_is_among_all(attention, num_hidden_layers) -> None:
    config = tiny.model_config(num_hidden_layers=num_hidden_layers, initializer_range=0.3)
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
        # Softmax is always taken in fp32, which is what the tolerance is for.
        torch.testing.assert_close(alone, whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("sizes", [{}, {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 3}])
@pytest.mark.parametrize(("kind", "with_pooler"), [(BertForPreTraining, True), (BertForMaskedLM, False)])
def test_operations_are_those_of_the_matrix_products(sizes, kind, with_pooler):
    config = tiny.model_config(**sizes)
    model = kind(config, vocab_size=300, pad_token_id=0, attention="plain")
    ids = torch.ones(4, 16, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        output = model(ids, torch.zeros_like(ids), None, ids[:, :4])
        sum(logits.sum() for logits in output if logits is not None).backward()
    counted = counter.get_total_flops() / ids.numel()
    expected = flops_per_token(config, vocab_size=300, seq_len=16, target_fraction=4 / 16, with_pooler=with_pooler)
    # Pooler and NSP head are left out of the one, biases and norms are counted in the other.
    assert counted == pytest.approx(expected, rel=0.05)


def test_no_target_is_a_loss_of_zero_with_zero_gradients() -> None:
    logits = torch.randn(2, 3, 5, requires_grad=True)
    loss, num_targets = masked_lm_loss_sum(logits, torch.full((2, 3), -100))
    loss.backward()
    assert (loss.item(), num_targets.item()) == (0, 0)
    assert (logits.grad == 0).all()
