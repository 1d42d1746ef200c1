"""LAMB against algorithm 2 of its paper, written down once more with plain loops in double precision."""

import math

import pytest
import torch
from torch import nn

import tiny
from bertline.modeling.bert import BertForPreTraining
from bertline.training.groupwise import Lamb
from bertline.training.optimizers import LambConfig
from bertline.training.optimizers.base import set_learning_rate

CONFIG = LambConfig(kind="lamb", lr=0.02, beta1=0.9, beta2=0.99, eps=1e-6, weight_decay=0.1, max_grad_norm=None)


class PlainLamb:
    """Numbers in lists, one matrix or vector at a time."""

    def __init__(self, values: list[float], *, adapted: bool) -> None:
        self.values, self.adapted, self.steps = values, adapted, 0
        self.m, self.v = [0.0] * len(values), [0.0] * len(values)

    def step(self, gradient: list[float], lr: float) -> None:
        self.steps += 1
        update = []
        for index, g in enumerate(gradient):
            self.m[index] = 0.9 * self.m[index] + (1 - 0.9) * g
            self.v[index] = 0.99 * self.v[index] + (1 - 0.99) * g * g
            m, v = self.m[index] / (1 - 0.9**self.steps), self.v[index] / (1 - 0.99**self.steps)
            ratio = m / (math.sqrt(v) + 1e-6)
            update.append(ratio + 0.1 * self.values[index] if self.adapted else ratio)
        factor = math.hypot(*self.values) / math.hypot(*update) if self.adapted else 1.0
        self.values = [value - lr * factor * change for value, change in zip(self.values, update, strict=True)]


def flat(tensor: torch.Tensor) -> list[float]:
    return tensor.detach().double().flatten().tolist()


def bert() -> BertForPreTraining:
    torch.manual_seed(0)
    return BertForPreTraining(tiny.model_config(num_hidden_layers=1), vocab_size=20, pad_token_id=0)


def give_gradients(model: nn.Module) -> None:
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)


def test_steps_are_those_of_the_paper_on_every_weight_of_a_bert():
    model = bert()
    optimizer = CONFIG.build(model)
    # A fused weight is three matrices, each with a length of its own.
    thirds = {name: 3 if name.endswith("query_key_value.weight") else 1 for name, _ in model.named_parameters()}
    expected = {
        name: [PlainLamb(flat(part), adapted=weight.ndim == 2) for part in weight.chunk(thirds[name])]
        for name, weight in model.named_parameters()
    }
    for step in range(4):
        lr = 0.02 * (step + 1) / 4
        give_gradients(model)
        for name, weight in model.named_parameters():
            for part, plain in zip(weight.grad.chunk(thirds[name]), expected[name], strict=True):
                plain.step(flat(part), lr)
        set_learning_rate(optimizer, lr)
        optimizer.step()
    assert sum(thirds.values()) > len(thirds)
    for name, weight in model.named_parameters():
        values = [value for plain in expected[name] for value in plain.values]
        torch.testing.assert_close(torch.tensor(flat(weight)), torch.tensor(values), msg=name, atol=2e-6, rtol=2e-5)


def test_the_first_step_of_a_matrix_is_as_long_as_the_rate_says():
    weight = nn.Parameter(torch.randn(6, 4) * 7)
    before = weight.detach().clone()
    optimizer = Lamb([{"params": [weight], "weight_decay": 0.3}], lr=0.01, betas=(0.9, 0.999), eps=1e-6)
    weight.grad = torch.randn(6, 4) * 1e-3
    optimizer.step()
    assert (weight - before).norm().item() == pytest.approx(0.01 * before.norm().item(), rel=1e-5)


def test_a_matrix_of_zeros_still_moves():
    weight = nn.Parameter(torch.zeros(2, 2))
    optimizer = Lamb([{"params": [weight]}], lr=0.1, betas=(0.9, 0.999), eps=1e-6)
    weight.grad = torch.ones(2, 2)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((2, 2), -0.1), atol=1e-5, rtol=0)


def test_a_weight_without_a_gradient_stays_and_starts_its_count_when_it_gets_one():
    weights = [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))]
    optimizer = Lamb([{"params": weights}], lr=0.1, betas=(0.9, 0.999), eps=1e-6)
    weights[0].grad = torch.ones(2, 2)
    for _ in range(5):
        optimizer.step()
    assert torch.equal(weights[1], torch.ones(2, 2))
    weights[1].grad = torch.ones(2, 2)
    optimizer.step()
    torch.testing.assert_close(weights[1].detach(), torch.full((2, 2), 0.9), atol=1e-5, rtol=0)
