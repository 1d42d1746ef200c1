"""Optimizers and the rate of a matrix product on a CUDA device."""

import pytest
import torch

import tiny
from bertline.modeling.bert import BertForPreTraining
from bertline.training.groupwise import set_learning_rate
from bertline.training.optimizers import AdamWConfig, MuonConfig

ADAM = {"lr": 0.01, "beta1": 0.9, "beta2": 0.98, "eps": 1e-6, "weight_decay": 0.1, "max_grad_norm": None}
ALL = [AdamWConfig(kind="adamw", **ADAM), MuonConfig(kind="muon", momentum=0.95, adamw_lr=0.002, **ADAM)]


def model_on(device: str) -> BertForPreTraining:
    torch.manual_seed(3)
    return BertForPreTraining(tiny.model_config(), vocab_size=20, pad_token_id=0).to(device)


def take_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator).to(weight.device)
    set_learning_rate(optimizer, 0.01 / (step + 1))
    optimizer.step()


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.kind)
def test_steps_are_those_of_the_cpu_to_rounding(config):
    on_cpu, on_gpu = model_on("cpu"), model_on("cuda")
    for model in (on_cpu, on_gpu):
        optimizer = config.build(model)
        for step in range(4):
            take_step(model, optimizer, step)
    expected = dict(on_cpu.named_parameters())
    for name, weight in on_gpu.named_parameters():
        torch.testing.assert_close(weight.cpu(), expected[name], atol=2e-4, rtol=1e-3, msg=name)
