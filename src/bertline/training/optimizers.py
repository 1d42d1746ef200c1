"""Build optimizers from their configuration."""

from __future__ import annotations

from typing import Any, NamedTuple, assert_never

import torch
from torch import Tensor, nn

from bertline.modeling.layers import EncoderLayer
from bertline.training.config import AdamWConfig, LambConfig, MuonConfig, OptimizerConfig
from bertline.training.devices import Precision
from bertline.training.groupwise import GroupwiseOptimizer
from bertline.training.lamb import Lamb
from bertline.training.muon import Muon

FUSED_DEVICES = ("cpu", "cuda", "mps")
"""Device types on which PyTorch's AdamW can update all weights in one kernel."""
MATRICES_IN_FUSED = 3
"""Number of matrices of equal shape (query, key and value) stacked along the rows of a fused weight [3 H, H]."""


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, *, precision: Precision = "fp32"
) -> torch.optim.Optimizer:
    """Build the optimizer of `config` over all trainable weights of `model`, which is already on its device.

    Matrices have weight decay; vectors (biases, LayerNorm's scale and shift) do not, as in the reference code's
    `exclude_from_weight_decay`. AdamW's update is fused into one kernel where PyTorch has one.

    Args:
        model: Model, or a module that contains it.
        config: Optimizer section.
        precision: Precision of the run's matrix products, used for Muon's own products too.

    Raises:
        ValueError: The optimizer is Muon, but the model has no encoder layers to train.

    References:
        AdamW, arXiv 1711.05101, algorithm 2; the others are named in `lamb.py` and `muon.py`.
    """
    match config:
        case AdamWConfig():
            return _adamw(model, config)
        case LambConfig():
            return _lamb(model, config)
        case MuonConfig():
            return _muon(model, config, torch.bfloat16 if precision == "bf16" else torch.float32)
        case _:
            assert_never(config)


def _adamw(model: nn.Module, config: AdamWConfig) -> torch.optim.Optimizer:
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        _not_empty(groups),
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=_can_fuse(weights),
    )


def _lamb(model: nn.Module, config: LambConfig) -> Lamb:
    kinds = weight_kinds(model)
    decay = config.weight_decay
    groups = [
        {"params": kinds.fused, "weight_decay": decay, "num_matrices": MATRICES_IN_FUSED},
        {"params": [*kinds.layer_matrices, *kinds.other_matrices], "weight_decay": decay},
        {"params": kinds.vectors, "adapted": False},
    ]
    return Lamb(_not_empty(groups), lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps)


def _muon(model: nn.Module, config: MuonConfig, dtype: torch.dtype) -> Muon:
    kinds = weight_kinds(model)
    if not (kinds.fused or kinds.layer_matrices):
        raise ValueError("muon is for the matrices of encoder layers, and this model has none to train; use adamw")
    decay, factor = config.weight_decay, config.adamw_lr / config.lr
    groups = [
        {"params": kinds.fused, "weight_decay": decay, "orthogonal": True, "num_matrices": MATRICES_IN_FUSED},
        {"params": kinds.layer_matrices, "weight_decay": decay, "orthogonal": True, "num_matrices": 1},
        {"params": kinds.other_matrices, "weight_decay": decay, "orthogonal": False, "rate_factor": factor},
        {"params": kinds.vectors, "weight_decay": 0.0, "orthogonal": False, "rate_factor": factor},
    ]
    return Muon(
        _not_empty(groups),
        lr=config.lr,
        momentum=config.momentum,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        dtype=dtype,
        fused=_can_fuse([*kinds.other_matrices, *kinds.vectors]),
    )


def _not_empty(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [group for group in groups if group["params"]]


def _can_fuse(weights: list[nn.Parameter]) -> bool:
    return all(weight.device.type in FUSED_DEVICES for weight in weights)


class AdamWithoutBiasCorrection(GroupwiseOptimizer):
    """Optimizer of BERT's reference code: AdamW without bias correction.

    The averages start at zero. Without correction, the first steps are too long by a factor of up to
    (1 - beta1) / sqrt(1 - beta2), which makes fine-tuning on small data sets unstable (arXiv 2006.05987, section 4).
    This optimizer exists to reproduce old results.

    Args:
        params: Weights, or parameter groups with `weight_decay`.
        lr: Learning rate.
        betas: Decay rates of the average gradient and of the average squared gradient.
        eps: Added to the square root of the average squared gradient.

    References:
        google-research/bert `optimization.py`, `AdamWeightDecayOptimizer`.
    """

    def __init__(self, params: Any, *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    def _first_state(self, group: dict[str, Any], weight: Tensor) -> dict[str, Any]:
        return {"exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        gradients = [weight.grad for weight in weights]
        averages, squares = ([self.state[weight][name] for weight in weights] for name in ("exp_avg", "exp_avg_sq"))
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(averages, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        updates = torch._foreach_sqrt(squares)
        torch._foreach_add_(updates, group["eps"])
        updates = torch._foreach_div(averages, updates)
        torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        torch._foreach_add_(weights, updates, alpha=-group["lr"])


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of the next step in every parameter group: `lr` times the group's `rate_factor`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("rate_factor", 1.0)


class WeightKinds(NamedTuple):
    """Trainable weights of a model, each in one of these lists, in the model's order."""

    fused: list[nn.Parameter]
    """Fused weights [3 H, H] of `MATRICES_IN_FUSED` matrices each."""
    layer_matrices: list[nn.Parameter]
    """Other matrices of the encoder's layers."""
    other_matrices: list[nn.Parameter]
    """Embeddings, pooler and heads."""
    vectors: list[nn.Parameter]
    """Biases, and LayerNorm's scale and shift."""


def weight_kinds(model: nn.Module) -> WeightKinds:
    """Sort the trainable weights of a model, or of a module that contains one, by kind."""
    layers = [module for module in model.modules() if isinstance(module, EncoderLayer)]
    fused = {layer.query_key_value.weight for layer in layers}
    in_layers = {weight for layer in layers for weight in layer.parameters()}
    kinds = WeightKinds([], [], [], [])
    for weight in model.parameters():
        if not weight.requires_grad:
            continue
        if weight.ndim < 2:
            kinds.vectors.append(weight)
        elif weight in fused:
            kinds.fused.append(weight)
        elif weight in in_layers:
            kinds.layer_matrices.append(weight)
        else:
            kinds.other_matrices.append(weight)
    return kinds
