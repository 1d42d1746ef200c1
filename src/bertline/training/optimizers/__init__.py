"""The optimizers: a new one is a file of `training/optimizers` and a line here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from bertline.foundation.checked import FractionBelowOne, PositiveFloat
from bertline.training.optimizers.base import AdamSettings, groups_by_decay, not_empty

if TYPE_CHECKING:
    import torch
    from torch import nn

    from bertline.training.config import Precision
    from bertline.training.groupwise import Muon


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamWConfig(AdamSettings):
    """AdamW (arXiv 1711.05101)."""

    kind: Literal["adamw"]

    def build(self, model: nn.Module, *, precision: Precision = "fp32") -> torch.optim.AdamW:
        """See `OptimizerSettings.build`."""
        import torch

        groups, betas = groups_by_decay(model, self.weight_decay), (self.beta1, self.beta2)
        return torch.optim.AdamW(groups, lr=self.lr, betas=betas, eps=self.eps, fused=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class MuonConfig(AdamSettings):
    """Muon (Jordan et al. 2024; arXiv 2502.16982, section 2.2) for the matrices of the layers, AdamW for the rest.

    `lr` is the learning rate of the layers' matrices. Their updates are scaled to the size of AdamW's, so AdamW's
    learning rates fit, and do not depend on the size of the gradient.
    """

    moments_of_layers: ClassVar[int | None] = 1

    kind: Literal["muon"]
    momentum: FractionBelowOne
    """Momentum of the matrices of the layers."""
    adamw_lr: PositiveFloat
    """Peak learning rate of embeddings, heads and vectors."""

    def build(self, model: nn.Module, *, precision: Precision = "fp32") -> Muon:
        """See `OptimizerSettings.build`; Muon's own products are in `precision` too. A model needs encoder layers."""
        import torch

        from bertline.modeling.layers import EncoderLayer
        from bertline.training.groupwise import Muon

        layers = [module for module in model.modules() if isinstance(module, EncoderLayer)]
        in_fused = {layer.query_key_value.weight for layer in layers}  # [3 H, H]: query, key and value
        in_others = {weight for layer in layers for weight in layer.parameters() if weight.ndim >= 2} - in_fused
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        fused = [weight for weight in weights if weight in in_fused]
        others = [weight for weight in weights if weight in in_others]
        outside = [one for one in weights if one.ndim >= 2 and one not in in_fused and one not in in_others]
        vectors = [weight for weight in weights if weight.ndim < 2]
        if not (fused or others):
            raise ValueError("muon is for the matrices of encoder layers, and this model has none to train; use adamw")
        decay, factor = self.weight_decay, self.adamw_lr / self.lr
        groups = [
            {"params": fused, "weight_decay": decay, "orthogonal": True, "num_matrices": 3},
            {"params": others, "weight_decay": decay, "orthogonal": True, "num_matrices": 1},
            {"params": outside, "weight_decay": decay, "orthogonal": False, "rate_factor": factor},
            {"params": vectors, "weight_decay": 0.0, "orthogonal": False, "rate_factor": factor},
        ]
        betas, dtype = (self.beta1, self.beta2), torch.bfloat16 if precision == "bf16" else torch.float32
        return Muon(not_empty(groups), lr=self.lr, momentum=self.momentum, betas=betas, eps=self.eps, dtype=dtype)


OptimizerConfig = AdamWConfig | MuonConfig
