"""The encoder against everything that it is measured against, on the same rows of each test."""

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
"""`combined` is made of the encoder's runs, seed by seed."""


@dataclass(frozen=True, slots=True)
class System:
    """An arm or a baseline on one split."""

    statistics: Sequence[NDArray[np.float64]]
    """Row statistics [N, K] of each seed."""
    repeatable: bool
    """Nothing about it is random: one run is all there is."""


@dataclass(frozen=True, slots=True)
class Comparisons:
    """One test's scores of every arm and baseline."""

    measured: dict[str, Measured]

    def interval(self, name: str) -> tuple[float, float] | None:
        """95 %, of a system's mean score; None where its noise is not known (`NOISE_UNKNOWN`)."""
        return compared(self.measured[name]).interval

    def against(self, name: str, first: str = ENCODER) -> Difference:
        """The first system minus another."""
        same_seeds = {name, first} == {ENCODER, COMBINED}
        return compared(self.measured[first], self.measured[name], same_seeds=same_seeds)

    def with_encoder(self) -> dict[str, dict[str, Any]]:
        """Every comparison of the encoder, as plain data."""
        return {name: self.against(name).to_json() for name in self.measured if name != ENCODER}


def comparisons_by_split(
    plan: PlannedSweep, winners: Mapping[Arm, Sequence[Repetition]], baselines: Sequence[ScoredBaseline]
) -> dict[SplitName, Comparisons]:
    """For every test what the encoder and everything that it is measured against reach there."""
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
    """The winner on dev, by which versions of a model are compared later."""
    system = System(
        [seed.dev_statistics(plan.job) for seed in seeds], not is_random(plan, seeds[0].arm, seeds[0].params)
    )
    return _measured(plan, "dev", {ENCODER: system})[ENCODER]


def _measured(plan: PlannedSweep, split: SplitName, systems: Mapping[str, System]) -> dict[str, Measured]:
    # The statistics of any row mean the same in every arm; only the encoding differs.
    kind, metric = kind_of(plan.job, plan.starts["encoder"]), plan.job.task.metric
    sources = kind.read(plan.job.task_folder, split).sources()

    def score(statistics: NDArray[np.float64]) -> float:
        return kind.scores(statistics)[metric]

    return {
        name: measured(system.statistics, sources, score, repeatable=system.repeatable)
        for name, system in systems.items()
    }
