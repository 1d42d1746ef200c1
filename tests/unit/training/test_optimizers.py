import pytest
import torch
from torch import nn

from bertline.training.config import AdamWConfig
from bertline.training.optimizers import AdamWithoutBiasCorrection, build_optimizer, set_learning_rate

CONFIG = AdamWConfig(kind="adamw", lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.5, max_grad_norm=None)


def small_model() -> nn.Module:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 1.0)
    return model


def test_matrices_decay_and_biases_and_layer_norm_do_not():
    model = small_model()
    optimizer = build_optimizer(model, CONFIG)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # what moves without a gradient has decayed
    optimizer.step()
    moved = {name for name, parameter in model.named_parameters() if not torch.all(parameter == 1.0)}
    assert moved == {"0.weight", "1.weight"}
    assert torch.allclose(model[1].weight, torch.tensor(1.0 - 0.1 * 0.5))


def test_frozen_weights_are_left_out():
    model = small_model()
    model[0].weight.requires_grad_(False)
    optimizer = build_optimizer(model, CONFIG)
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    assert id(model[0].weight) not in held
    assert len(held) == 4


def test_the_update_is_adamws():
    model, reference = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)
    reference.load_state_dict(model.state_dict())
    ours = build_optimizer(model, CONFIG)
    theirs = torch.optim.AdamW(
        reference.parameters(), lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.5, fused=False
    )
    for _ in range(3):
        for parameter, other in zip(model.parameters(), reference.parameters(), strict=True):
            parameter.grad = torch.randn_like(parameter)
            other.grad = parameter.grad.clone()
        ours.step()
        theirs.step()
    torch.testing.assert_close(model.weight, reference.weight)


def test_the_learning_rate_is_set_for_every_group():
    optimizer = build_optimizer(small_model(), CONFIG)
    set_learning_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


def test_without_bias_correction_the_first_steps_are_those_of_the_reference_code():
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = AdamWithoutBiasCorrection(
        [{"params": [weight], "weight_decay": 0.01}], lr=0.1, betas=(0.9, 0.999), eps=1e-6
    )
    # By hand, optimization.py's AdamWeightDecayOptimizer with the gradients 0.5 and -1:
    # m = 0.05, v = 0.00025, update = 0.05 / (0.0158114 + 1e-6) + 0.02 = 3.1820777, weight = 1.6817922
    # m = -0.055, v = 0.00124975, update = -0.055 / (0.0353518 + 1e-6) + 0.0168179 = -1.5389203, weight = 1.8356842
    for gradient, expected in ((0.5, 1.6817922), (-1.0, 1.8356842)):
        weight.grad = torch.tensor([gradient])
        optimizer.step()
        assert weight.item() == pytest.approx(expected, abs=2e-6)


def test_without_bias_correction_many_steps_follow_the_formula_in_double_precision():
    torch.manual_seed(0)
    weights = [
        torch.nn.Parameter(torch.randn(4, 3)),
        torch.nn.Parameter(torch.randn(3)),
        torch.nn.Parameter(torch.ones(2)),
    ]
    groups = [{"params": weights[:1], "weight_decay": 0.1}, {"params": weights[1:], "weight_decay": 0.0}]
    optimizer = AdamWithoutBiasCorrection(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-6)
    expected = [weight.detach().double() for weight in weights[:2]]
    m, v = [torch.zeros_like(w) for w in expected], [torch.zeros_like(w) for w in expected]
    for step in range(20):
        set_learning_rate(optimizer, 0.01 * (step + 1) / 20)
        for index, decay in enumerate((0.1, 0.0)):
            gradient = torch.randn_like(weights[index])
            weights[index].grad = gradient
            m[index] = 0.9 * m[index] + 0.1 * gradient.double()
            v[index] = 0.999 * v[index] + 0.001 * gradient.double() ** 2
            update = m[index] / (v[index].sqrt() + 1e-6) + decay * expected[index]
            expected[index] = expected[index] - 0.01 * (step + 1) / 20 * update
        optimizer.step()
    for weight, reference in zip(weights, expected, strict=False):
        torch.testing.assert_close(weight.detach().double(), reference, atol=1e-5, rtol=1e-5)
    assert torch.equal(weights[2], torch.ones(2))  # never had a gradient


def test_a_group_may_have_a_share_of_the_rate():
    optimizer = torch.optim.AdamW([{"params": [torch.nn.Parameter(torch.ones(1))], "rate_factor": 0.5}])
    set_learning_rate(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] == 0.125
