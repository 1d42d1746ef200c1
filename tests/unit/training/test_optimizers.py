"""The optimizers against their papers and PyTorch's, and what all of them do alike."""

import math

import pytest
import torch
from torch import nn

import tiny
from bertline.modeling.bert import BertForPreTraining
from bertline.training.groupwise import orthogonalised, set_learning_rate
from bertline.training.optimizers import AdamWConfig, MuonConfig

ADAM = {"lr": 0.02, "beta1": 0.9, "beta2": 0.98, "eps": 1e-6, "weight_decay": 0.1, "max_grad_norm": None}
ADAMW = AdamWConfig(kind="adamw", **ADAM)
MUON = MuonConfig(kind="muon", momentum=0.95, adamw_lr=0.005, **ADAM)
EACH = pytest.mark.parametrize("config", [ADAMW, MUON], ids=lambda config: config.kind)


def bert() -> BertForPreTraining:
    torch.manual_seed(0)
    return BertForPreTraining(tiny.model_config(), vocab_size=20, pad_token_id=0)


def give_gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator)


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        give_gradients(model, step)
        set_learning_rate(optimizer, 0.01 / (step + 1))
        optimizer.step()


def test_matrices_decay_and_biases_and_layer_norm_do_not():
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 1.0)
        parameter.grad = torch.zeros_like(parameter)  # what moves without a gradient has decayed
    ADAMW.build(model).step()
    moved = {name for name, parameter in model.named_parameters() if not torch.all(parameter == 1.0)}
    assert moved == {"0.weight", "1.weight"}
    assert torch.allclose(model[1].weight, torch.tensor(1.0 - 0.02 * 0.1))


def by_singular_values(matrix: torch.Tensor) -> torch.Tensor:
    """What five steps of the quintic do to the singular values of a matrix of Frobenius norm one."""
    left, values, right = torch.linalg.svd(matrix.double() / matrix.double().norm(), full_matrices=False)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left @ values.diag() @ right


@pytest.mark.parametrize("shape", [(8, 8), (5, 12), (12, 5), (1, 7)])
def test_only_the_singular_values_change_and_each_matrix_by_itself(shape):
    torch.manual_seed(1)
    matrices = torch.randn(3, *shape) * torch.tensor([1e-4, 1.0, 1e3])[:, None, None]
    found = orthogonalised(matrices, torch.float32)
    assert found.shape == matrices.shape
    for matrix, changed in zip(matrices, found, strict=True):
        torch.testing.assert_close(changed.double(), by_singular_values(matrix), atol=2e-3, rtol=0)


def test_autocast_around_a_step_does_not_change_its_precision():
    torch.manual_seed(1)
    matrices = torch.randn(2, 16, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = orthogonalised(matrices, torch.float32)
    assert torch.equal(within, orthogonalised(matrices, torch.float32))


def test_layer_matrices_follow_muon_and_the_fused_ones_are_three():
    model = bert()
    optimizer = MUON.build(model)
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
    ours = MUON.build(model)
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
    torch.testing.assert_close({name: found[name] for name, _ in rest}, dict(rest))


def test_a_model_without_layers_is_refused():
    with pytest.raises(ValueError, match="has none to train; use adamw"):
        MUON.build(nn.Linear(2, 2))


@EACH
def test_every_optimizer_holds_each_trainable_weight_once_and_lowers_a_loss(config):
    model = bert()
    model.bert.embeddings.word_embeddings.weight.requires_grad_(False)
    optimizer = config.build(model)
    held = [weight for group in optimizer.param_groups for weight in group["params"]]
    assert len(held) == len({id(weight) for weight in held}) == sum(w.requires_grad for w in model.parameters())
    loss = lambda: sum((weight - 0.3).square().sum() for weight in held)  # noqa: E731
    before = loss().item()
    for _ in range(20):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert loss().item() < before


@EACH
def test_no_optimizer_waits_for_the_device_in_a_step(config, monkeypatch):
    model = bert()
    optimizer = config.build(model)
    take_steps(model, optimizer, range(1))

    def waits(*_: object) -> None:
        raise AssertionError("read a value back")

    for name in ("item", "tolist", "__bool__", "__float__", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, waits)
    optimizer.step()
