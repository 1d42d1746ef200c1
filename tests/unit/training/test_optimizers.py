import io

import pytest
import torch
from torch import nn

import tiny
from bertline.modeling.bert import BertForPreTraining
from bertline.training.groupwise import AdamWithoutBiasCorrection
from bertline.training.optimizers import AdamWConfig, LambConfig, MuonConfig
from bertline.training.optimizers.base import set_learning_rate, weight_kinds

CONFIG = AdamWConfig(kind="adamw", lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.5, max_grad_norm=None)
ADAM = {"lr": 0.01, "beta1": 0.9, "beta2": 0.98, "eps": 1e-6, "weight_decay": 0.1, "max_grad_norm": None}
ALL = [
    AdamWConfig(kind="adamw", **ADAM),
    LambConfig(kind="lamb", **ADAM),
    MuonConfig(kind="muon", momentum=0.95, adamw_lr=0.002, **ADAM),
]


def small_model() -> nn.Module:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 1.0)
    return model


def test_matrices_decay_and_biases_and_layer_norm_do_not():
    model = small_model()
    optimizer = CONFIG.build(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # what moves without a gradient has decayed
    optimizer.step()
    moved = {name for name, parameter in model.named_parameters() if not torch.all(parameter == 1.0)}
    assert moved == {"0.weight", "1.weight"}
    assert torch.allclose(model[1].weight, torch.tensor(1.0 - 0.1 * 0.5))


def test_frozen_weights_are_left_out():
    model = small_model()
    model[0].weight.requires_grad_(False)
    optimizer = CONFIG.build(model)
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    assert id(model[0].weight) not in held
    assert len(held) == 4


def test_the_update_is_adamws():
    model, reference = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)
    reference.load_state_dict(model.state_dict())
    ours = CONFIG.build(model)
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


def small_bert() -> BertForPreTraining:
    torch.manual_seed(3)
    return BertForPreTraining(tiny.model_config(), vocab_size=20, pad_token_id=0)


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for weight in model.parameters():
            weight.grad = torch.randn(weight.shape, generator=generator)
        set_learning_rate(optimizer, 0.01 / (step + 1))
        optimizer.step()


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.kind)
def test_every_optimizer_resumes_bitwise_from_a_state_saved_without_pickle(config):
    alone, stopped, resumed = small_bert(), small_bert(), small_bert()
    optimizer = config.build(alone)
    take_steps(alone, optimizer, range(7))

    first = config.build(stopped)
    take_steps(stopped, first, range(3))
    file = io.BytesIO()
    torch.save({"model": stopped.state_dict(), "optimizer": first.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed.load_state_dict(saved["model"])
    second = config.build(resumed)
    second.load_state_dict(saved["optimizer"])
    take_steps(resumed, second, range(3, 7))

    for weight, expected in zip(resumed.parameters(), alone.parameters(), strict=True):
        assert torch.equal(weight, expected)
    for weight, expected in zip(resumed.parameters(), alone.parameters(), strict=True):
        assert second.state[weight].keys() == optimizer.state[expected].keys()
        for name, value in second.state[weight].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(optimizer.state[expected][name])), name


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.kind)
def test_every_optimizer_holds_each_trainable_weight_once_and_lowers_a_loss(config):
    model = small_bert()
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


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.kind)
def test_no_optimizer_waits_for_the_device_in_a_step(config, monkeypatch):
    model = small_bert()
    optimizer = config.build(model)
    take_steps(model, optimizer, range(1))

    def waits(*_: object) -> None:
        raise AssertionError("read a value back")

    for name in ("item", "tolist", "__bool__", "__float__", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, waits)
    optimizer.step()


def test_the_rates_of_muon_keep_their_proportion_through_the_schedule():
    optimizer = ALL[2].build(small_bert())
    set_learning_rate(optimizer, 0.005)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.005, 0.005, 0.001, 0.001])


def test_weights_are_sorted_into_kinds():
    model = small_bert()
    names = {id(weight): name for name, weight in model.named_parameters()}
    kinds = weight_kinds(nn.ModuleDict({"losses": model}))
    fused, layers, others, vectors = ({names[id(weight)] for weight in kind} for kind in kinds)
    assert fused == {f"bert.layers.{layer}.query_key_value.weight" for layer in (0, 1)}
    parts = ("attention_output", "intermediate", "output")
    assert layers == {f"bert.layers.{layer}.{part}.weight" for layer in (0, 1) for part in parts}
    assert {"bert.embeddings.word_embeddings.weight", "bert.pooler.weight", "nsp_head.weight"} < others
    assert "bert.layers.0.query_key_value.bias" in vectors
    assert len(fused) + len(layers) + len(others) + len(vectors) == len(names)
