"""The encoder against everything that stands beside it, on the same rows of each test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from bertline.finetuning.kinds.base import TaskKind
from bertline.sweep.baseline_scores import ScoredBaseline
from bertline.sweep.bench import kind_of, test_splits
from bertline.sweep.job import Arm, PlannedSweep, SweepJob
from bertline.sweep.repetitions import Repetition
from bertline.sweep.resampling import interval, paired_test, resampled_scores
from bertline.sweep.summary import threshold
from bertline.tasks.storage import SplitName

_SIGNIFICANT = 0.05
_ARMS: tuple[str, ...] = get_args(Arm)


@dataclass(frozen=True, slots=True)
class Comparisons:
    """What resampling the rows of a test gives."""

    intervals: dict[str, tuple[float, float]]
    """95 %, of the score of each arm (its mean over seeds) and baseline."""
    with_encoder: dict[str, dict[str, Any]]
    """By arm or baseline: difference, interval, p_value, better, and of an arm the threshold."""


def compared(
    plan: PlannedSweep, winners: Mapping[Arm, Sequence[Repetition]], baselines: Sequence[ScoredBaseline]
) -> dict[SplitName, Comparisons]:
    """For every test: intervals of all, and a paired test of the encoder against each arm and baseline."""
    # The statistics of any row mean the same in every arm; only the encoding differs.
    kind = kind_of(plan.job, plan.starts["encoder"])
    found = {}
    for split in test_splits(plan.job):
        systems: dict[str, list[NDArray[np.float64]]] = {
            arm: [seed.test_statistics(plan.job, split) for seed in seeds] for arm, seeds in winners.items()
        }
        systems |= {baseline.name: [baseline.test_statistics[split]] for baseline in baselines}
        found[split] = _of_split(plan.job, kind, systems)
    return found


def _of_split(
    job: SweepJob, kind: TaskKind[Any, Any, Any], systems: Mapping[str, Sequence[NDArray[np.float64]]]
) -> Comparisons:
    """Of the row statistics of every system's seeds, on one test."""

    def score(statistics: NDArray[np.float64]) -> float:
        return kind.scores(statistics)[job.task.metric]

    samples = resampled_scores(systems, score, num_samples=job.sweep.num_bootstrap_samples, seed=job.sweep.seed)
    found = {name: [score(statistics) for statistics in of_seeds] for name, of_seeds in systems.items()}
    with_encoder: dict[str, dict[str, Any]] = {}
    for name in systems:
        if name == "encoder":
            continue
        test = paired_test(
            float(np.mean(found["encoder"])), float(np.mean(found[name])), samples["encoder"], samples[name]
        )
        with_encoder[name] = {
            "difference": test.difference,
            "interval": test.interval,
            "p_value": test.p_value,
            "better": test.difference > 0 and test.p_value < _SIGNIFICANT,
        }
        if name in _ARMS:
            with_encoder[name]["threshold"] = threshold(found["encoder"], found[name])
    return Comparisons({name: interval(of_system) for name, of_system in samples.items()}, with_encoder)
