"""Dev evaluations during a run, and early stopping."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.finetuning.task_kind import Calibration

if TYPE_CHECKING:
    from bertline.finetuning.finetune import FineTuningJob


@dataclass(frozen=True, slots=True)
class DevCheck:
    """Scores of one dev evaluation during training."""

    share: float
    """Completed fraction of the schedule, in (0, 1]."""
    epoch: int
    """Number of finished epochs."""
    at_epoch_end: bool
    scores: dict[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class DevOutcome:
    """Result of an evaluation on dev."""

    scores: dict[str, float]
    calibration: Calibration
    statistics: NDArray[np.float64]
    """Contribution of each row to the scores, [N, K]."""


class DevEvaluations:
    """Evaluates a model on dev during training and, with early stopping, keeps the weights of the best epoch.

    An evaluation changes neither the weights nor the random numbers of later steps.

    Args:
        job: The run.
        on_check: Called after each evaluation; an exception that it raises ends the run.
    """

    def __init__(self, job: FineTuningJob, on_check: Callable[[DevCheck], None] | None) -> None:
        self.checks: list[DevCheck] = []
        self._job = job
        self._patience = job.config.early_stopping_epochs
        self._on_check = on_check
        self._newest: tuple[int, DevOutcome] | None = None
        self._best: tuple[float, DevOutcome, dict[str, Tensor]] | None = None
        self._epochs_without_better = 0

    def evaluate(self, model: nn.Module, *, step: int, share: float, epoch: int, at_epoch_end: bool) -> None:
        """Evaluate on dev and record the scores; a second call for the same step reuses the result."""
        if self._newest is None or self._newest[0] != step:
            kind, rows = self._job.kind, self._job.dev.rows
            predictions = kind.predict(model, self._job.dev.encoded, self._job.machine)
            calibration = kind.calibrate(rows, predictions)
            statistics = kind.statistics(rows, predictions, calibration)
            self._newest = (step, DevOutcome(kind.scores(statistics), calibration, statistics))
        self.checks.append(DevCheck(share, epoch, at_epoch_end, self._newest[1].scores))
        if at_epoch_end and self._patience is not None:
            self._compare(model, self._newest[1])
        if self._on_check is not None:
            self._on_check(self.checks[-1])

    @property
    def should_stop(self) -> bool:
        """Whether early stopping ends the run: the patience is exhausted."""
        return self._patience is not None and self._epochs_without_better >= self._patience

    def finish(self, model: nn.Module) -> DevOutcome:
        """Evaluate the finished model on dev; with early stopping, restore the weights of the best epoch first."""
        if self._best is not None:
            _, found, weights = self._best
            model.load_state_dict(weights)
            return found
        assert self._newest is not None  # every run ends with an evaluation
        return self._newest[1]

    def _compare(self, model: nn.Module, found: DevOutcome) -> None:
        score = found.scores[self._job.kind.config.metric]
        score = -math.inf if math.isnan(score) else score
        if self._best is not None and score <= self._best[0]:
            self._epochs_without_better += 1
            return
        weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self._best = (score, found, weights)
        self._epochs_without_better = 0


def steps_of_shares(shares: Sequence[float], *, num_steps: int, steps_per_epoch: int) -> list[tuple[int, float]]:
    """Return the step (at least 1) at which each share of the schedule is completed, leaving out shares at epoch ends.

    >>> steps_of_shares([0.125, 0.25, 0.5], num_steps=20, steps_per_epoch=10)
    [(2, 0.125), (5, 0.25)]
    """
    ends = [epoch * steps_per_epoch / num_steps for epoch in range(1, num_steps // steps_per_epoch + 1)]
    return [
        (max(1, round(share * num_steps)), share)
        for share in shares
        if not any(math.isclose(share, end) for end in ends)
    ]
