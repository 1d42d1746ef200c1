"""Base class of bertline's own optimizers: a step updates the groups of weights that have gradients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class GroupwiseOptimizer(torch.optim.Optimizer):
    """Optimizer that updates a group of weights at a time and can skip a step without synchronizing with the device.

    A skipped step leaves every weight and every tensor of the optimizer state bitwise unchanged.
    """

    found_inf: Tensor | None = None
    """Scalar on the device of the weights: the next step is skipped unless it is zero. None: the step is taken.
    PyTorch's fused optimizers have an attribute of this name and meaning."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step with the gradients of the weights; a weight without one is not changed."""
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
        with self._skipped_if_bad([weight for _, weights in groups for weight in weights]):
            self._update_all(groups)
        return result

    def _update_all(self, groups: list[tuple[dict[str, Any], list[Tensor]]]) -> None:
        """Update the given weights of each group."""
        for group, weights in groups:
            self._update(group, weights)

    @abstractmethod
    def _first_state(self, group: dict[str, Any], weight: Tensor) -> dict[str, Any]:
        """Return the optimizer state of a weight of the group before its first step."""

    @abstractmethod
    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        """Update the given weights of the group, each of which has a gradient and a state."""

    @contextmanager
    def _skipped_if_bad(self, weights: list[Tensor]) -> Iterator[None]:
        """Restore weights and state after the block if `found_inf` is not zero; decided on the device, without waiting.

        An update with zero gradients would not be enough: if its norm is fixed, as for LAMB and Muon, it follows the
        old averages at full size. The copies exist only during a step, when there are no activations.
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
            # Without a fused AdamW in PyTorch, Muon's step counts are on the CPU; otherwise `to` copies nothing.
            torch.where(is_bad.to(value.device), old, value, out=value)
