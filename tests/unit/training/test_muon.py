"""Muon against the singular value decomposition, PyTorch's own Muon and PyTorch's AdamW."""

import math

import pytest
import torch
from torch import nn

import tiny
from bertline.modeling.bert import BertForPreTraining
from bertline.training.groupwise import orthogonalised
from bertline.training.optimizers import MuonConfig
from bertline.training.optimizers.base import set_learning_rate

CONFIG = MuonConfig(
    kind="muon",
    lr=0.02,
    momentum=0.95,
    adamw_lr=0.005,
    beta1=0.9,
    beta2=0.98,
    eps=1e-6,
    weight_decay=0.1,
    max_grad_norm=None,
)


def by_singular_values(matrix: torch.Tensor) -> torch.Tensor:
    """What five steps of the quintic do to the singular values of a matrix of Frobenius norm one."""
    left, values, right = torch.linalg.svd(matrix.double() / matrix.double().norm(), full_matrices=False)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left @ values.diag() @ right


def bert() -> BertForPreTraining:
    torch.manual_seed(0)
    return BertForPreTraining(tiny.model_config(), vocab_size=20, pad_token_id=0)


def give_gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator)


@pytest.mark.parametrize("shape", [(8, 8), (5, 12), (12, 5), (1, 7)])
def test_only_the_singular_values_change_and_each_matrix_by_itself(shape):
    torch.manual_seed(1)
    matrices = torch.randn(3, *shape) * torch.tensor([1e-4, 1.0, 1e3])[:, None, None]
    found = orthogonalised(matrices, torch.float32)
    assert found.shape == matrices.shape
    for matrix, changed in zip(matrices, found, strict=True):
        torch.testing.assert_close(changed.double(), by_singular_values(matrix), atol=2e-3, rtol=0)


def test_a_matrix_of_zeros_stays_zero():
    assert torch.equal(orthogonalised(torch.zeros(1, 3, 4), torch.float32), torch.zeros(1, 3, 4))


def test_autocast_around_a_step_does_not_change_its_precision():
    torch.manual_seed(1)
    matrices = torch.randn(2, 16, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = orthogonalised(matrices, torch.float32)
    assert torch.equal(within, orthogonalised(matrices, torch.float32))


def test_layer_matrices_follow_muon_and_the_fused_ones_are_three():
    model = bert()
    optimizer = CONFIG.build(model)
    names = [name for name, weight in model.named_parameters() if ".layers." in name and weight.ndim == 2]
    assert len(names) == 2 * 4
    weights = dict(model.named_parameters())
    expected = {name: weights[name].detach().double() for name in names}
    sums = {name: torch.zeros_like(expected[name]) for name in names}
    for step in range(3):
        lr = 0.02 / (step + 1)
        give_gradients(model, step)
        for name in names:
            gradient = weights[name].grad.double()
            sums[name] = 0.95 * sums[name] + gradient
            thirds = 3 if "query_key_value" in name else 1
            direction = torch.cat([by_singular_values(part) for part in (gradient + 0.95 * sums[name]).chunk(thirds)])
            rows, columns = expected[name].shape[0] // thirds, expected[name].shape[1]
            step_size = lr * 0.2 * math.sqrt(max(rows, columns))
            expected[name] = expected[name] * (1 - lr * 0.1) - step_size * direction
        set_learning_rate(optimizer, lr)
        optimizer.step()
    for name in names:
        torch.testing.assert_close(weights[name].detach().double(), expected[name], atol=2e-4, rtol=0, msg=name)


def test_embeddings_heads_and_vectors_follow_adamw_at_their_own_rate():
    model, other = bert(), bert()
    ours = CONFIG.build(model)
    rest = [(name, weight) for name, weight in other.named_parameters() if ".layers." not in name or weight.ndim == 1]
    groups = [
        {"params": [weight for _, weight in rest if weight.ndim == 2], "weight_decay": 0.1},
        {"params": [weight for _, weight in rest if weight.ndim == 1], "weight_decay": 0.0},
    ]
    theirs = torch.optim.AdamW(groups, lr=0.005, betas=(0.9, 0.98), eps=1e-6, fused=False)
    for step in range(3):
        for each in (model, other):
            give_gradients(each, step)
        set_learning_rate(ours, 0.02 * (step + 1) / 3)
        set_learning_rate(theirs, 0.005 * (step + 1) / 3)
        ours.step()
        theirs.step()
    found = dict(model.named_parameters())
    assert any("word_embeddings" in name for name, _ in rest)
    for name, weight in rest:
        torch.testing.assert_close(found[name], weight, msg=name)


def test_on_matrices_that_are_not_fused_the_direction_is_that_of_pytorchs_muon():
    model, other = bert(), bert()
    ours = CONFIG.build(model, precision="bf16")
    name = "bert.layers.0.intermediate.weight"
    weight, reference = dict(model.named_parameters())[name], dict(other.named_parameters())[name]
    theirs = torch.optim.Muon([reference], lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        for each in (model, other):
            give_gradients(each, step)
        ours.step()
        theirs.step()
    # Both compute in bf16, which has three digits, and round at different places.
    torch.testing.assert_close(weight, reference, atol=0.02 * 0.2 * math.sqrt(48) * 0.03, rtol=0)


def test_a_model_without_layers_is_refused():
    with pytest.raises(ValueError, match="has none to train; use adamw"):
        CONFIG.build(nn.Linear(2, 2))
