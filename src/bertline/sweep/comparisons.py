"""Comparisons of the encoder with the other arms and the baselines, on the same rows of each test split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertline.foundation.verdicts import Difference, Measured, compared, measured
from bertline.sweep.baseline_scores import ScoredBaseline
from bertline.sweep.bench import kind_of, test_splits
from bertline.sweep.job import Arm, PlannedSweep
from bertline.sweep.repetitions import Repetition, is_random
from bertline.tasks.storage import SplitName

ENCODER, COMBINED = "encoder", "combined"
"""`combined` is computed from the encoder's runs, so the seeds of the two are paired."""


@dataclass(frozen=True, slots=True)
class System:
    """Row statistics of an arm or a baseline on one split."""

    statistics: Sequence[NDArray[np.float64]]
    """Array [N, K] of each seed."""
    repeatable: bool
    """Whether the system is deterministic, so that one run suffices."""


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Scores of all arms and baselines on one test split."""

    measured: dict[str, Measured]

    def interval(self, name: str) -> tuple[float, float] | None:
        """Return the 95 % confidence interval of a system's mean score; None if its noise is unknown."""
        return compared(self.measured[name]).interval

    def against(self, name: str, first: str = ENCODER) -> Difference:
        """Compare two systems: the score of `first` minus that of `name`."""
        same_seeds = {name, first} == {ENCODER, COMBINED}
        return compared(self.measured[first], self.measured[name], same_seeds=same_seeds)

    def with_encoder(self) -> dict[str, dict[str, Any]]:
        """Return the comparisons of the encoder with all other systems, as plain data."""
        return {name: self.against(name).to_json() for name in self.measured if name != ENCODER}


def comparisons_by_split(
    plan: PlannedSweep, winners: Mapping[Arm, Sequence[Repetition]], baselines: Sequence[ScoredBaseline]
) -> dict[SplitName, Comparisons]:
    """Measure the winners of all arms and the baselines on every test split."""
    found: dict[SplitName, Comparisons] = {}
    for split in test_splits(plan.job):
        systems = {
            str(arm): System(
                [seed.test_statistics(plan.job, split) for seed in seeds], not is_random(plan, arm, seeds[0].params)
            )
            for arm, seeds in winners.items()
        }
        systems |= {one.name: System([one.test_statistics[split]], repeatable=True) for one in baselines}
        found[split] = Comparisons(_measured(plan, split, systems))
    return found


def on_dev(plan: PlannedSweep, seeds: Sequence[Repetition]) -> Measured:
    """Return the winner's scores on dev, by which versions of a model are compared later."""
    system = System(
        [seed.dev_statistics(plan.job) for seed in seeds], not is_random(plan, seeds[0].arm, seeds[0].params)
    )
    return _measured(plan, "dev", {ENCODER: system})[ENCODER]


def _measured(plan: PlannedSweep, split: SplitName, systems: Mapping[str, System]) -> dict[str, Measured]:
    # Row statistics have the same meaning in every arm (only the encoding differs), so one task kind scores them all.
    kind, metric = kind_of(plan.job, plan.starts["encoder"]), plan.job.task.metric
    sources = kind.read(plan.job.task_folder, split).sources()

    def score(statistics: NDArray[np.float64]) -> float:
        return kind.scores(statistics)[metric]

    return {
        name: measured(system.statistics, sources, score, repeatable=system.repeatable)
        for name, system in systems.items()
    }
