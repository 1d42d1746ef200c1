"""Freezing, re-initialization, and parameter groups with layer-wise learning rates."""

from typing import Any, cast

import torch
from torch import nn

from bertline.encoders.loading import Encoder
from bertline.finetuning.config import FineTuningConfig
from bertline.foundation.errors import ConfigError
from bertline.foundation.seeds import seed_for
from bertline.modeling.initialization import initialize

# Values of the reference code (optimization.py); fine-tuning varies only the other hyperparameters.
_BETAS, _EPS = (0.9, 0.999), 1e-6


def reinitialize_top(encoder: Encoder, num_layers: int, *, seed: int) -> None:
    """Re-initialize the top `num_layers` layers and the pooler; 0 changes nothing.

    Raises:
        ConfigError: The encoder has fewer layers.

    Reference: Zhang et al., Revisiting Few-sample BERT Fine-tuning (arXiv 2006.05987), section 5.
    """
    if num_layers == 0:
        return
    _check_layers("reinitialized_layers", num_layers, encoder)
    first = len(encoder.layers) - num_layers
    for number in range(first, len(encoder.layers)):
        initialize(encoder.layers[number], encoder.config, seed=seed_for(seed, "layer", number))
    if encoder.pooler is not None:
        initialize(encoder.pooler, encoder.config, seed=seed_for(seed, "pooler"))


def freeze(encoder: Encoder, trained_layers: int | None) -> None:
    """Freeze the embeddings and all but the last `trained_layers` layers; None freezes nothing.

    Frozen modules run in evaluation mode, without dropout: they give the same features in every epoch (the
    feature-based approach of the paper, section 5.3). The pooler is never frozen: many checkpoints come without one.

    Raises:
        ConfigError: The encoder has fewer layers.
    """
    if trained_layers is None:
        return
    _check_layers("trained_layers", trained_layers, encoder)
    frozen = [*encoder.below_layers, *encoder.layers[: len(encoder.layers) - trained_layers]]
    for module in frozen:
        module.requires_grad_(False)
        module.eval()


def parameter_groups(model: nn.Module, *, weight_decay: float, layer_decay: float) -> list[dict[str, Any]]:
    """Group the trained weights by learning rate and weight decay.

    A group's `rate_factor` multiplies the learning rate of the run: it is 1 for the head, the pooler and the top layer,
    `layer_decay` for the layer below, its square below that, and so on; the embeddings are the lowest layer. Weight
    decay applies to matrices but not to vectors (biases, LayerNorm's scale and shift), as in the reference code.

    References:
        Clark et al., ELECTRA (arXiv 2003.10555), appendix B; Howard and Ruder, ULMFiT (arXiv 1801.06146), section 3.2.
    """
    encoder: Encoder = cast(Any, model).bert
    levels = (nn.ModuleList(encoder.below_layers), *encoder.layers)
    # Layers below the top; weights that are not in it (head, pooler) are at the top.
    depths = {id(weight): len(levels) - 1 - level for level, part in enumerate(levels) for weight in part.parameters()}
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for weight in model.parameters():
        if not weight.requires_grad:
            continue
        depth, decays = depths.get(id(weight), 0), weight.ndim >= 2
        group = {"params": [], "weight_decay": weight_decay if decays else 0.0, "rate_factor": layer_decay**depth}
        # Without layer decay two groups are enough, and fewer groups are faster.
        groups.setdefault((depth if layer_decay != 1 else 0, decays), group)["params"].append(weight)
    return list(groups.values())


def fine_tuning_optimizer(model: nn.Module, config: FineTuningConfig) -> torch.optim.Optimizer:
    """Return AdamW over the trained weights.

    Raises:
        ConfigError: No weight is trained.
    """
    groups = parameter_groups(model, weight_decay=config.weight_decay, layer_decay=config.layer_decay)
    if not groups:
        raise nothing_to_train()
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=_BETAS, eps=_EPS, fused=True)


def nothing_to_train() -> ConfigError:
    """Return the error for a run whose loss depends on no trained weight."""
    return ConfigError(
        "fine_tuning.trained_layers is 0, but this task's head has no weights of its own, so there is nothing to "
        "train. Train at least one layer, or set fine_tuning.num_epochs to 0 to score the encoder as it is."
    )


def _check_layers(key: str, number: int, encoder: Encoder) -> None:
    if number > len(encoder.layers):
        raise ConfigError(
            f"fine_tuning.{key} is {number}, but the encoder has {len(encoder.layers)} layers. Ask for at most so many."
        )
