"""Memory from the configuration alone, checked against what real steps keep."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import planning_inputs
import tiny
from bertline.examples.masking import max_targets
from bertline.modeling.bert import BertForMaskedLM, BertForPreTraining, MaskedLanguageModel
from bertline.modeling.config import ModelConfig
from bertline.modeling.losses import masked_lm_loss_sum, sequence_loss_sum
from bertline.planning.memory import StepShape, largest_fitting, memory_of, optimizer_bytes

VOCAB_SIZE = 1000
SEQUENCES, LENGTH = 8, 64
TARGETS = max_targets(LENGTH, 0.15)


def shape(**changes: Any) -> StepShape:
    fields: dict[str, Any] = {
        "sequences": SEQUENCES,
        "length": LENGTH,
        "targets": TARGETS,
        "precision": "fp32",
        "optimizer": planning_inputs.optimizer("adamw"),
        "compiled": False,
        "fused_attention": True,
        "with_pooler": True,
    }
    return StepShape(**{**fields, **changes})


def bert(config: ModelConfig, *, attention: Any = "sdpa") -> BertForPreTraining:
    return BertForPreTraining(config, vocab_size=VOCAB_SIZE, pad_token_id=0, attention=attention)


def loss_of(model: MaskedLanguageModel) -> torch.Tensor:
    input_ids = torch.randint(5, VOCAB_SIZE, (SEQUENCES, LENGTH))
    masked_positions = torch.arange(TARGETS).expand(SEQUENCES, TARGETS)
    output = model(input_ids, torch.zeros_like(input_ids), torch.ones_like(input_ids), masked_positions)
    mlm_loss, _ = masked_lm_loss_sum(output.mlm_logits, torch.randint(5, VOCAB_SIZE, (SEQUENCES, TARGETS)))
    if isinstance(model, BertForMaskedLM):
        return mlm_loss
    nsp_loss: Any = sequence_loss_sum(output.nsp_logits, torch.zeros(SEQUENCES, dtype=torch.long))
    return mlm_loss + nsp_loss


@pytest.mark.parametrize("kind", ["adamw", "lamb", "muon"])
@pytest.mark.parametrize("with_pooler", [True, False])
def test_weights_gradients_and_the_state_of_the_optimizer_are_exact(kind: str, with_pooler: bool) -> None:
    config = planning_inputs.model("tiny")
    model: Any = bert(config) if with_pooler else BertForMaskedLM(config, vocab_size=VOCAB_SIZE, pad_token_id=0)
    config_of_optimizer = planning_inputs.optimizer(kind)
    optimizer = config_of_optimizer.build(model)
    loss_of(model).backward()
    optimizer.step()
    estimate = memory_of(config, shape(optimizer=config_of_optimizer, with_pooler=with_pooler), vocab_size=VOCAB_SIZE)
    assert estimate.weights == sum(weight.nbytes for weight in model.parameters())
    assert estimate.gradients == sum(weight.grad.nbytes for weight in model.parameters() if weight.grad is not None)
    kept = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    assert estimate.optimizer == sum(value.nbytes for value in kept if value.ndim)  # without counters of steps


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
# On a CPU PyTorch's fused attention has no dropout.
@pytest.mark.parametrize(("attention", "dropout"), [("sdpa", 0.0), ("plain", 0.0), ("plain", 0.1)])
def test_what_a_step_keeps_for_its_backward_pass_is_within_a_quarter_of_the_estimate(
    precision: Any, attention: str, dropout: float
) -> None:
    config = planning_inputs.model("tiny", hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    model = bert(config, attention=attention)
    kept: dict[int, int] = {}

    def remember(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"),
    ):
        loss = loss_of(model)
    assert loss.isfinite()
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    found = sum(size for place, size in kept.items() if place not in weights)
    estimate = memory_of(config, shape(precision=precision, fused_attention=attention == "sdpa"), vocab_size=VOCAB_SIZE)
    softmax = SEQUENCES * TARGETS * VOCAB_SIZE * 4
    copies = estimate.weights - 4 * sum(weight.numel() for weight in model.parameters())
    assert found == pytest.approx(estimate.activations + softmax + copies, rel=0.25)


@pytest.mark.parametrize("size", planning_inputs.SIZES)
@pytest.mark.parametrize("gigabytes", [2, 16, 80])
def test_the_largest_micro_batch_fits_and_twice_that_does_not(size: str, gigabytes: int) -> None:
    config, usable = planning_inputs.model(size), gigabytes * 10**9
    found = largest_fitting(config, shape(), usable, vocab_size=30_522)
    if found is None:
        assert memory_of(config, shape(sequences=1), vocab_size=30_522).total > usable
        return
    assert memory_of(config, shape(sequences=found), vocab_size=30_522).total <= usable
    assert memory_of(config, shape(sequences=2 * found), vocab_size=30_522).total > usable


def test_where_not_even_one_sequence_fits_there_is_no_micro_batch() -> None:
    assert largest_fitting(planning_inputs.model("large"), shape(), 2 * 10**9, vocab_size=30_522) is None


def test_base_by_hand() -> None:
    """110,106,428 weights; a layer keeps 36 H bytes a position in bf16, the last one 6 H of them where nothing but
    keys and values is read; 256 x 19 scores of 30,522 tokens."""
    config = planning_inputs.model("base", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    step = shape(sequences=256, length=128, targets=19, precision="bf16", compiled=True)
    estimate = memory_of(config, step, vocab_size=30_522)
    assert dataclasses.asdict(estimate) == {
        "weights": 6 * 110_106_428,
        "gradients": 4 * 110_106_428,
        "optimizer": 8 * 110_106_428,
        "activations": 256 * 128 * (11 * 36 * 768 + 6 * 768 + 6 * 768) + 256 * (19 + 1) * 30 * 768,
        "logits": 256 * 19 * 30_522 * 4,
    }


def test_muon_keeps_one_average_of_the_matrices_of_the_layers() -> None:
    config = tiny.model_config()
    presets = (planning_inputs.optimizer(preset) for preset in ("adamw", "muon"))
    adamw, muon = (optimizer_bytes(config, preset, num_weights=50_000) for preset in presets)
    assert adamw - muon == 4 * 2 * (4 * 32 * 32 + 2 * 32 * 48)
