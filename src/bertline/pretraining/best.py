"""The best step of a run so far: the one with the lowest held-out loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bertline.pretraining.plan import Plan
from bertline.training.probe import Probe

_KEY = "val/mlm_loss"


class BestStep:
    """Runs the validation probe and records the step after which `val/mlm_loss` was lowest.

    Losses at different sequence lengths are not comparable: when a phase changes the length, the search starts over.
    The measurement before the first step does not count; nothing has been trained at that point.

    Args:
        validation: Probe that measures the loss, with the same result on every rank.
        plan: Gives the sequence length of a step.
    """

    def __init__(self, validation: Probe, plan: Plan) -> None:
        self.every_steps = validation.every_steps
        self.step: int | None = None
        self.mlm_loss = math.inf
        self._max_length = 0
        self._validation = validation
        self._plan = plan

    def probe(self, step: int) -> Mapping[str, float]:
        """Validate and record the step if its loss is the lowest so far."""
        metrics = self._validation.probe(step)
        max_length = self._plan.place(max(0, step - 1)).max_length
        lowest = self.mlm_loss if max_length == self._max_length else math.inf
        if step > 0 and metrics[_KEY] < lowest:
            self.step, self.mlm_loss, self._max_length = step, metrics[_KEY], max_length
        return metrics

    def keep_up_to(self, step: int) -> None:
        """Drop validation records after `step`. The best step itself is restored from the checkpoint."""
        self._validation.keep_up_to(step)

    def as_mapping(self) -> dict[str, Any] | None:
        """Return the best step as plain data for the checkpoint; None if there is none yet."""
        if self.step is None:
            return None
        return {"step": self.step, _KEY: self.mlm_loss, "max_length": self._max_length}

    def restore(self, found: Mapping[str, Any] | None) -> None:
        """Restore the best step from the `as_mapping` of a checkpoint; None resets it."""
        found = found or {"step": None, _KEY: math.inf, "max_length": 0}
        self.step, self.mlm_loss, self._max_length = found["step"], found[_KEY], found["max_length"]
