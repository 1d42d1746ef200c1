"""The sweep stage: trials, then the best configurations over seeds on dev, and finally test, with the baselines."""

from __future__ import annotations

from typing import Any

from bertline.finetuning.finetune import check_options
from bertline.foundation.files import writing
from bertline.foundation.formats import with_spread
from bertline.foundation.progress import say
from bertline.foundation.work import Work
from bertline.sweep.baseline_scores import baselines_to_score, scored_baselines
from bertline.sweep.bench import kind_of
from bertline.sweep.fusion import combined_seeds
from bertline.sweep.job import SweepJob, planned
from bertline.sweep.notes import notes_after, notes_before
from bertline.sweep.repetitions import (
    candidates_over_seeds,
    label_efficiency,
    read_tests,
    run_repetitions,
    sync_repetition_events,
    winners,
)
from bertline.sweep.results import Outcomes, headline, write_result
from bertline.sweep.space import planned_points, space_of
from bertline.sweep.trials import opened_studies, run_trials, workers_matter
from bertline.sweep.workers import KnownWork, started_workers

__all__ = ["SweepJob", "run", "run_sweep"]


def run(work: Work) -> dict[str, float]:
    """Sweep in a worker process; see `run_sweep`."""
    return run_sweep(SweepJob.of(work))


def run_sweep(job: SweepJob, *, in_process: bool = False) -> dict[str, float]:
    """Tune, repeat and compare on one task, or resume a killed sweep.

    Finished trials and repetitions are in the store and the run folder and are not run again.

    Args:
        job: The sweep.
        in_process: Do the work in this process instead of in `runtime.sweep_workers` worker processes.

    Returns:
        Headline figures: mean and spread on test of the encoder and the other arms, and the baselines' scores.
    """
    with writing(job.run_folder):
        job.run_folder.mkdir(parents=True, exist_ok=True)
    planned_points(job.sweep, job.task)  # raises for an invalid space before any work
    plan = planned(job)
    for start in plan.starts.values():  # likewise for lengths an encoder cannot read, and options without effect
        check_options(kind_of(job, start), plan.fine_tuning, varied=space_of(job.sweep, job.task))
    studies = opened_studies(plan)
    notes = notes_before(plan)
    _say_all(job, notes)
    with started_workers(plan, in_process=in_process) as workers:
        scoring = KnownWork(job, baselines_to_score(plan))
        candidates = candidates_over_seeds(plan, run_trials(studies, workers, filler=scoring))
        run_repetitions(plan, candidates, workers, filler=scoring)
        chosen = winners(plan, candidates)
        read_tests(plan, chosen, workers, filler=scoring)
        found = notes_after(plan, chosen)
        _say_all(job, found)
        sync_repetition_events(plan, candidates)
        others = label_efficiency(plan, {arm: seeds[0].params for arm, seeds in chosen.items()})
        run_repetitions(plan, others, workers, filler=scoring)
        sync_repetition_events(plan, others)
        workers.work_through(scoring)
    baselines = scored_baselines(plan)
    if combined := combined_seeds(plan, chosen["encoder"], baselines):
        chosen["combined"] = combined
    with studies.store.reached():
        outcomes = Outcomes(studies.trials(), candidates, chosen, others, baselines)
        result = write_result(plan, outcomes, workers_matter=workers_matter(job.sweep), note=" ".join(notes + found))
    say(_summary(result))
    return headline(result)


def _say_all(job: SweepJob, sentences: list[str]) -> None:
    for sentence in sentences:
        say(f"{job.task_name}: {sentence}")


def _summary(result: dict[str, Any]) -> str:
    """Return two lines on the result: the scores of the encoder and its opponents, then the conclusion."""
    encoder = result["arms"]["encoder"]
    beside = [f"{other['title']} {_mean(other)}" for arm, other in result["arms"].items() if arm != "encoder"]
    beside += [f"{baseline['title']} {baseline['test']:.3f}" for baseline in result["baselines"].values()]
    num_seeds = len(encoder["seeds"])
    runs = f"over {num_seeds} seeds" if num_seeds > 1 else "in one run"
    score = f"{result['task']}: test {result['metric']} {_mean(encoder)} {runs}"
    return "\n".join(["; ".join([score, ", ".join(beside)]) if beside else score, result["conclusion"]["sentence"]])


def _mean(arm: dict[str, Any]) -> str:
    diverged = f" (diverged seeds left out: {arm['num_diverged']})" if arm["num_diverged"] else ""
    return f"{with_spread(arm['test_mean'], arm['test_std'])}{diverged}"
