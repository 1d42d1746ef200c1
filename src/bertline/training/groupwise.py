"""What bertline's own optimizers share: a step goes through the groups of weights that have gradients."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor


class GroupwiseOptimizer(torch.optim.Optimizer):
    """An optimizer that updates a group of weights at a time."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step with the gradients that the weights hold; a weight without one stays."""
        with torch.enable_grad():
            result = None if closure is None else closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._update(group, weights)
        return result

    @abstractmethod
    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        """Update these weights of the group, each of which has a gradient."""
