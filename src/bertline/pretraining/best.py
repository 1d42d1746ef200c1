"""The best step of a run so far: the one with the lowest held-out loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bertline.pretraining.plan import Plan
from bertline.training.probe import Probe


class BestStep:
    """Runs the validation probe and records the step after which the held-out loss was lowest.

    Losses at different sequence lengths are not comparable: when a phase changes the length, the search starts over.
    The measurement before the first step does not count; nothing has been trained at that point.

    Args:
        validation: Probe that measures the loss, with the same result on every rank.
        plan: Gives the sequence length of a step.
        judged_by: Name of the loss; see `Objective.judged_by`.
    """

    def __init__(self, validation: Probe, plan: Plan, *, judged_by: str) -> None:
        self.every_steps = validation.every_steps
        self.step: int | None = None
        self.loss = math.inf
        self._key = f"val/{judged_by}"
        self._max_length = 0
        self._validation = validation
        self._plan = plan

    def probe(self, step: int) -> Mapping[str, float]:
        """Validate and record the step if its loss is the lowest so far."""
        metrics = self._validation.probe(step)
        max_length = self._plan.place(max(0, step - 1)).max_length
        lowest = self.loss if max_length == self._max_length else math.inf
        if step > 0 and metrics[self._key] < lowest:
            self.step, self.loss, self._max_length = step, metrics[self._key], max_length
        return metrics

    def keep_up_to(self, step: int) -> None:
        """Drop validation records after `step`. The best step itself is restored from the checkpoint."""
        self._validation.keep_up_to(step)

    def as_mapping(self) -> dict[str, Any] | None:
        """Return the best step as plain data for the checkpoint; None if there is none yet."""
        if self.step is None:
            return None
        return {"step": self.step, self._key: self.loss, "max_length": self._max_length}

    def restore(self, found: Mapping[str, Any] | None) -> None:
        """Restore the best step from the `as_mapping` of a checkpoint; None resets it."""
        found = found or {"step": None, self._key: math.inf, "max_length": 0}
        self.step, self.loss, self._max_length = found["step"], found[self._key], found["max_length"]
