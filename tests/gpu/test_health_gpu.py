"""Skipping a step on a CUDA device, without waiting for it."""

import math

import pytest
import torch
from torch import nn

from bertline.training.groupwise import all_finite, skip_unless_finite
from bertline.training.optimizers import AdamWConfig

CONFIG = AdamWConfig(kind="adamw", lr=1e-2, beta1=0.9, beta2=0.98, eps=1e-6, weight_decay=0.1, max_grad_norm=1.0)


@pytest.mark.parametrize("bad_value", [math.nan, math.inf])
def test_a_bad_step_is_skipped_without_waiting_for_the_device(without_waiting, bad_value):
    model = nn.Linear(64, 64, device="cuda")
    optimizer = CONFIG.build(model)
    gradients = [torch.randn_like(weight) for weight in model.parameters()]
    bad = torch.full((64, 64), bad_value, device="cuda")

    def take(first: torch.Tensor) -> None:
        for weight, gradient in zip(model.parameters(), (first, gradients[1]), strict=True):
            weight.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        skip_unless_finite(optimizer, norm)
        optimizer.step()

    take(gradients[0])
    before = [weight.detach().clone() for weight in model.parameters()]
    with without_waiting():
        take(bad)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    assert {float(state["step"]) for state in optimizer.state.values()} == {1.0}
    take(gradients[0])
    assert all_finite(model)
    assert not any(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
