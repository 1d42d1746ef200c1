"""One bad batch does not corrupt the weights."""

import math

import pytest
import torch
from torch import nn

import tiny
from bertline.foundation.validation import validate
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.initialization import initialize
from bertline.training.groupwise import clip_gradients, skip_unless_finite
from bertline.training.optimizers import OptimizerConfig
from pretraining_inputs import OPTIMIZERS

ALL = [validate(OptimizerConfig, settings) for settings in OPTIMIZERS.values()]


@pytest.fixture
def model() -> nn.Module:
    model = BertForPreTraining(tiny.model_config(), vocab_size=50, pad_token_id=0)
    initialize(model, tiny.model_config(), seed=1)
    return model


def give_gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator)


def take_step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, *, bad_value: float | None = None) -> None:
    give_gradients(model, seed)
    if bad_value is not None:
        next(model.parameters()).grad[3, 1] = bad_value
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    skip_unless_finite(optimizer, norm)
    optimizer.step()


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in model.parameters()]


def state_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    values = (value for state in optimizer.state.values() for value in state.values())
    return [value.clone() for value in values if isinstance(value, torch.Tensor)]


def all_equal(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return bool(left) and all(torch.equal(*pair) for pair in zip(left, right, strict=True))


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.kind)
@pytest.mark.parametrize("bad_value", [math.nan, math.inf, -math.inf])
def test_a_step_is_skipped_as_if_it_had_never_been(model, config, bad_value):
    optimizer = config.build(model)
    take_step(model, optimizer, 1)
    weights, state = weights_of(model), state_of(optimizer)
    take_step(model, optimizer, 2, bad_value=bad_value)
    assert all_equal(weights, weights_of(model))
    assert all_equal(state, state_of(optimizer))
    take_step(model, optimizer, 3)
    skipping = weights_of(model)

    initialize(model, tiny.model_config(), seed=1)
    optimizer = config.build(model)
    take_step(model, optimizer, 1)
    take_step(model, optimizer, 3)
    assert all_equal(skipping, weights_of(model))


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.kind)
def test_a_good_step_is_the_same_where_the_device_has_to_choose(model, config):
    """As on a GPU; on the CPU a good step is known to be good before it is taken."""
    results = []
    for found_inf in (torch.zeros(()), None):
        initialize(model, tiny.model_config(), seed=1)
        optimizer = config.build(model)
        for seed in (1, 2):
            give_gradients(model, seed)
            optimizer.found_inf = found_inf
            optimizer.step()
        results.append([*weights_of(model), *state_of(optimizer)])
    assert all_equal(*results)


def test_an_optimizer_that_cannot_skip_a_step_is_refused(model):
    with pytest.raises(TypeError, match="SGD cannot skip a step"):
        skip_unless_finite(torch.optim.SGD(model.parameters()), torch.tensor(1.0))


@pytest.mark.parametrize("largest", [1.0, 0.99, math.inf])
@pytest.mark.parametrize("norm", [1e-3, 0.99 - 1e-6, 1.0 - 1e-6, 1.0, 30.0, math.nan, math.inf])
def test_clipping_gives_the_bits_of_pytorchs_whether_there_is_something_to_clip_or_not(
    norm: float, largest: float
) -> None:
    """With 0.99 - 1e-6 and a largest norm of 0.99 the quotient of equal numbers is not 1 as PyTorch rounds it."""
    gradients = [torch.zeros(5, 3), torch.tensor([norm, 0.0]), torch.zeros(2, 2, 2)]
    ours, theirs = ([nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients] for _ in range(2))
    for weights in (ours, theirs):
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.clone()
        weights.append(nn.Parameter(torch.zeros(3)))  # not reached by the loss
    found = clip_gradients(ours, largest)
    expected = torch.nn.utils.clip_grad_norm_(theirs, largest)
    assert torch.equal(found, expected) or (found.isnan() and expected.isnan())
    for mine, other in zip(ours[:-1], theirs[:-1], strict=True):
        assert torch.equal(mine.grad.view(torch.int32), other.grad.view(torch.int32))
    assert ours[-1].grad is None


def test_without_a_largest_norm_the_gradients_stay_and_their_norm_is_told():
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([30.0, 40.0])
    assert clip_gradients([weight], None) == 50
    assert weight.grad.tolist() == [30, 40]
