"""The best step of a run so far: where the held-out loss was lowest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bertline.pretraining.plan import Plan
from bertline.training.probe import Probe

_KEY = "val/mlm_loss"


class BestStep:
    """Runs the validation probe and remembers after which step `val/mlm_loss` was lowest.

    Losses at two sequence lengths are two measures: where a phase brings another length, the search begins anew. What
    is measured before the first step does not count; nothing has been trained there.

    Args:
        validation: Measures the loss; the same on every rank.
        plan: Says which length a step has.
    """

    def __init__(self, validation: Probe, plan: Plan) -> None:
        self.every_steps = validation.every_steps
        self.step: int | None = None
        self.mlm_loss = math.inf
        self._max_length = 0
        self._validation = validation
        self._plan = plan

    def probe(self, step: int) -> Mapping[str, float]:
        """Validate, and take note where that was the best so far."""
        metrics = self._validation.probe(step)
        max_length = self._plan.place(max(0, step - 1)).max_length
        lowest = self.mlm_loss if max_length == self._max_length else math.inf
        if step > 0 and metrics[_KEY] < lowest:
            self.step, self.mlm_loss, self._max_length = step, metrics[_KEY], max_length
        return metrics

    def keep_up_to(self, step: int) -> None:
        """What was best is in the checkpoint that training goes on from."""
        self._validation.keep_up_to(step)

    def as_mapping(self) -> dict[str, Any] | None:
        """For the checkpoint; None where nothing has been measured."""
        if self.step is None:
            return None
        return {"step": self.step, _KEY: self.mlm_loss, "max_length": self._max_length}

    def restore(self, found: Mapping[str, Any] | None) -> None:
        """Go on from the `as_mapping` of a checkpoint; None forgets."""
        found = found or {"step": None, _KEY: math.inf, "max_length": 0}
        self.step, self.mlm_loss, self._max_length = found["step"], found[_KEY], found["max_length"]
