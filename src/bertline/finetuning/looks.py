"""Looks at dev while a run goes on: what they found, and whether it is time to stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.kinds.base import Calibration, TaskKind
from bertline.training.devices import Machine


@dataclass(frozen=True, slots=True)
class DevCheck:
    """A look at dev during training."""

    share: float
    """Of the schedule that is behind, in (0, 1]."""
    epoch: int
    """Finished epochs."""
    at_epoch_end: bool
    scores: dict[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class DevOutcome:
    """Result of an evaluation on dev."""

    scores: dict[str, float]
    calibration: Calibration
    statistics: NDArray[np.float64]
    """Each row's contribution to the scores, [N, K]."""


class DevLooks:
    """Scores dev after each epoch and at given shares of the schedule, and keeps the best epoch where asked to.

    Looking changes nothing: not the weights, not the random numbers of the steps to come.

    Args:
        kind: Predicts and scores.
        rows: Of dev.
        encoded: The same as token ids.
        machine: Where this runs.
        patience: Epochs without a better score after which to stop; None never stops and keeps the last epoch.
        on_check: Called after each look; what it raises ends the run.
    """

    def __init__(
        self,
        kind: TaskKind[Any, Any, Any],
        rows: Any,
        encoded: Any,
        machine: Machine,
        *,
        patience: int | None,
        on_check: Callable[[DevCheck], None] | None,
    ) -> None:
        self.checks: list[DevCheck] = []
        self._kind = kind
        self._rows = rows
        self._encoded = encoded
        self._machine = machine
        self._patience = patience
        self._on_check = on_check
        self._newest: tuple[int, DevOutcome] | None = None
        self._best: tuple[float, DevOutcome, dict[str, Tensor]] | None = None
        self._epochs_without_better = 0

    def look(self, model: nn.Module, *, step: int, share: float, epoch: int, at_epoch_end: bool) -> None:
        """Score dev; twice after the same step costs once."""
        if self._newest is None or self._newest[0] != step:
            predictions = self._kind.predict(model, self._encoded, self._machine)
            calibration = self._kind.calibrate(self._rows, predictions)
            statistics = self._kind.statistics(self._rows, predictions, calibration)
            self._newest = (step, DevOutcome(self._kind.scores(statistics), calibration, statistics))
        self.checks.append(DevCheck(share, epoch, at_epoch_end, self._newest[1].scores))
        if at_epoch_end and self._patience is not None:
            self._compare(model, self._newest[1])
        if self._on_check is not None:
            self._on_check(self.checks[-1])

    @property
    def should_stop(self) -> bool:
        """Whether the patience is used up."""
        return self._patience is not None and self._epochs_without_better >= self._patience

    def finish(self, model: nn.Module) -> DevOutcome:
        """Evaluate the finished model on dev; with early stopping, restore the weights of the best epoch first."""
        if self._best is not None:
            _, found, weights = self._best
            model.load_state_dict(weights)
            return found
        assert self._newest is not None  # every run ends with a look
        return self._newest[1]

    def _compare(self, model: nn.Module, found: DevOutcome) -> None:
        score = found.scores[self._kind.config.metric]
        score = -math.inf if math.isnan(score) else score
        if self._best is not None and score <= self._best[0]:
            self._epochs_without_better += 1
            return
        weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self._best = (score, found, weights)
        self._epochs_without_better = 0


def steps_of_shares(shares: Sequence[float], *, num_steps: int, steps_per_epoch: int) -> list[tuple[int, float]]:
    """The step after which each share of the schedule is behind, at least one, without those that an epoch ends at.

    >>> steps_of_shares([0.125, 0.25, 0.5], num_steps=20, steps_per_epoch=10)
    [(2, 0.125), (5, 0.25)]
    """
    ends = [epoch * steps_per_epoch / num_steps for epoch in range(1, num_steps // steps_per_epoch + 1)]
    return [
        (max(1, round(share * num_steps)), share)
        for share in shares
        if not any(math.isclose(share, end) for end in ends)
    ]
