"""Parameters are counted as PyTorch counts them, operations as its own counter of matrix products does."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import tiny
from bertline.modeling.bert import BertForMaskedLM, BertForPreTraining
from bertline.modeling.flops import flops_per_token

VOCAB_SIZE, SEQUENCES, LENGTH, TARGETS = 300, 4, 16, 4


@pytest.fixture(params=[{}, {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 3}])
def config(request):
    return tiny.model_config(**request.param)


KINDS = pytest.mark.parametrize(("kind", "with_pooler"), [(BertForPreTraining, True), (BertForMaskedLM, False)])


@KINDS
def test_operations_are_those_of_the_matrix_products(config, kind, with_pooler):
    model = kind(config, vocab_size=VOCAB_SIZE, pad_token_id=0, attention="plain")
    ids = torch.ones(SEQUENCES, LENGTH, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        output = model(ids, torch.zeros_like(ids), None, ids[:, :TARGETS])
        sum(logits.sum() for logits in output).backward()
    counted = counter.get_total_flops() / ids.numel()
    expected = flops_per_token(
        config, vocab_size=VOCAB_SIZE, seq_len=LENGTH, target_fraction=TARGETS / LENGTH, with_pooler=with_pooler
    )
    # Pooler and NSP head are left out of the one, biases and norms are counted in the other.
    assert counted == pytest.approx(expected, rel=0.05)
