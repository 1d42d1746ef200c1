"""What bertline's own optimizers share: a step goes through the groups of weights that have gradients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class GroupwiseOptimizer(torch.optim.Optimizer):
    """An optimizer that updates a group of weights at a time and can pass over a step without knowing it.

    A step that is passed over leaves the bits of every weight, and of every tensor that the optimizer keeps for it,
    as they were.
    """

    found_inf: Tensor | None = None
    """Scalar on the device of the weights: the next step is passed over unless it is zero. None: it is taken. PyTorch's
    fused optimizers have an attribute of this name and meaning."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step with the gradients that the weights hold; a weight without one stays."""
        with torch.enable_grad():
            result = None if closure is None else closure()
        groups = []
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            for weight in weights:
                if not self.state[weight]:
                    self.state[weight].update(self._first_state(group, weight))
            if weights:
                groups.append((group, weights))
        with self._passed_over_if_bad([weight for _, weights in groups for weight in weights]):
            self._update_all(groups)
        return result

    def _update_all(self, groups: list[tuple[dict[str, Any], list[Tensor]]]) -> None:
        """Update these weights of each group."""
        for group, weights in groups:
            self._update(group, weights)

    @abstractmethod
    def _first_state(self, group: dict[str, Any], weight: Tensor) -> dict[str, Any]:
        """What the optimizer keeps for a weight of the group, before its first step."""

    @abstractmethod
    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        """Update these weights of the group, each of which has a gradient and a state."""

    @contextmanager
    def _passed_over_if_bad(self, weights: list[Tensor]) -> Iterator[None]:
        """Put everything back after the block where `found_inf` says so; the device chooses, nobody waits for it.

        An update on zero gradients would not do: where its length is fixed, as LAMB's and Muon's is, it goes on along
        the old averages at full size. The copies live for the length of a step, when there are no activations.
        """
        if self.found_inf is None:
            yield
            return
        kept = [*weights]
        for weight in weights:
            kept.extend(value for value in self.state[weight].values() if isinstance(value, Tensor))
        before = [torch.empty_like(value) for value in kept]
        torch._foreach_copy_(before, kept)
        yield
        is_bad = self.found_inf != 0
        for value, old in zip(kept, before, strict=True):
            # Where PyTorch has no fused AdamW, Muon counts on the CPU; else this moves nothing.
            torch.where(is_bad.to(value.device), old, value, out=value)
