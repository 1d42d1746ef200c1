"""LAMB, for batches of thousands of sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from bertline.training.optimizers.base import AdamSettings

if TYPE_CHECKING:
    from torch import nn

    from bertline.training.devices import Precision
    from bertline.training.groupwise import Lamb


@dataclass(frozen=True, kw_only=True, slots=True)
class LambConfig(AdamSettings):
    """LAMB (arXiv 1904.00962, algorithm 2), for batches of thousands of sequences.

    Biases and LayerNorm have neither weight decay nor adaptation to the norm of the weight.
    """

    takes_adamw_rates: ClassVar[bool] = False

    kind: Literal["lamb"]

    def build(self, model: nn.Module, *, precision: Precision = "fp32") -> Lamb:
        """See `OptimizerSettings.build`."""
        from bertline.training.groupwise import Lamb
        from bertline.training.optimizers.weights import MATRICES_IN_FUSED, not_empty, weight_kinds

        kinds, decay = weight_kinds(model), self.weight_decay
        groups = [
            {"params": kinds.fused, "weight_decay": decay, "num_matrices": MATRICES_IN_FUSED},
            {"params": [*kinds.layer_matrices, *kinds.other_matrices], "weight_decay": decay},
            {"params": kinds.vectors, "adapted": False},
        ]
        return Lamb(not_empty(groups), lr=self.lr, betas=(self.beta1, self.beta2), eps=self.eps)
