"""The stage sweep: trials, then the best configurations over seeds on dev, and test last, beside the baselines."""

from __future__ import annotations

from typing import Any

from bertline.foundation.errors import MachineError
from bertline.foundation.files import cannot_write
from bertline.foundation.progress import say
from bertline.sweep.baseline_scores import scored_baselines
from bertline.sweep.config import NoPrunerConfig, SweepConfig, TpeSamplerConfig
from bertline.sweep.job import Arm, PlannedSweep, SweepJob, planned
from bertline.sweep.repetitions import (
    Repetition,
    candidates_over_seeds,
    label_efficiency,
    read_tests,
    run_repetitions,
    sync_repetition_events,
    winners,
)
from bertline.sweep.results import Outcomes, headline, write_result
from bertline.sweep.space import planned_points
from bertline.sweep.study import ENDED, open_study
from bertline.sweep.trials import run_trials
from bertline.sweep.workers import started_workers

__all__ = ["SweepJob", "run_sweep"]


def run_sweep(job: SweepJob) -> dict[str, float]:
    """Tune, repeat and compare on one task, or go on where a killed sweep was.

    Finished trials and repetitions are in the store and the run folder and are not run again.

    Returns:
        Headline figures: the encoder's mean and spread on test beside the baselines.
    """
    try:
        job.run_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(cannot_write(job.run_folder, error)) from error
    planned_points(job.sweep, job.task)  # a space that cannot be is found before any work
    plan = planned(job)
    with started_workers(plan) as workers:
        candidates = candidates_over_seeds(plan, run_trials(plan, workers))
        run_repetitions(plan, candidates, workers)
        chosen = winners(plan, candidates)
        read_tests(plan, chosen, workers)
        sync_repetition_events(plan, candidates)
        others = label_efficiency(plan, {arm: seeds[0].params for arm, seeds in chosen.items()})
        run_repetitions(plan, others, workers)
        sync_repetition_events(plan, others)
    outcomes = _outcomes(plan, candidates, chosen, others)
    result = write_result(plan, outcomes, workers_matter=workers_matter(job.sweep), note=_note(job))
    say(_summary(result))
    return headline(result)


def workers_matter(sweep: SweepConfig) -> bool:
    """Whether the result depends on how many workers share the trials, and on when each of them ends."""
    return isinstance(sweep.sampler, TpeSamplerConfig) or not isinstance(sweep.pruner, NoPrunerConfig)


def _outcomes(
    plan: PlannedSweep, candidates: list[Repetition], chosen: dict[Arm, list[Repetition]], others: list[Repetition]
) -> Outcomes:
    trials = {arm: open_study(plan.job.run_folder, arm, plan.job.sweep).get_trials(states=ENDED) for arm in plan.arms}
    return Outcomes(
        trials=trials, candidates=candidates, winners=chosen, others=others, baselines=scored_baselines(plan)
    )


def _note(job: SweepJob) -> str:
    """What a reader of the result should know, in sentences; empty where there is nothing."""
    return ""


def _summary(result: dict[str, Any]) -> str:
    """The result in a line, with its spread and everything that it is measured against."""
    encoder = result["arms"]["encoder"]
    beside = [f"{other['title']} {_mean(other)}" for arm, other in result["arms"].items() if arm != "encoder"]
    beside += [f"{baseline['title']} {baseline['test']:.3f}" for baseline in result["baselines"].values()]
    score = f"{result['task']}: test {result['metric']} {_mean(encoder)} over {len(encoder['seeds'])} seeds"
    return "; ".join([score, ", ".join(beside)]) if beside else score


def _mean(arm: dict[str, Any]) -> str:
    return f"{arm['test_mean']:.3f} ± {arm['test_std']:.3f}"
