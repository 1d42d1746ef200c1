import torch
from torch import nn

from bertline.training.config import AdamWConfig
from bertline.training.optimizers import build_optimizer, set_learning_rate

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
