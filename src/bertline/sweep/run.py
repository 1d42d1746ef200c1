"""The stage sweep: trials, then the choice on dev, then seeds and baselines, and test last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from bertline.foundation.errors import MachineError
from bertline.foundation.files import cannot_write, read_json, write_json
from bertline.foundation.progress import say
from bertline.sweep.baselines import BaselineScores, majority_scores, tfidf_scores
from bertline.sweep.job import SweepJob
from bertline.sweep.repetitions import repetitions_of, run_repetitions
from bertline.sweep.results import headline, write_result
from bertline.sweep.space import planned_points
from bertline.sweep.trials import run_trials
from bertline.sweep.workers import started_workers
from bertline.tasks.storage import read_rows, read_task_manifest

__all__ = ["SweepJob", "run_sweep"]


def run_sweep(job: SweepJob) -> dict[str, float]:
    """Tune, repeat and compare on one task, or go on where a killed sweep was.

    Finished trials and repetitions are in the run folder and are not run again.

    Returns:
        Headline figures: the encoder's mean and spread on test beside the baselines.
    """
    try:
        job.run_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(cannot_write(job.run_folder, error)) from error
    planned_points(job.sweep, job.task)  # a space that cannot be is found before any work
    with started_workers(job) as workers:
        chosen = run_trials(job, workers)
        repetitions = repetitions_of(job, chosen)
        run_repetitions(job, repetitions, workers)
    baselines, tfidf_by_rows = _baselines(job)
    figures = headline(write_result(job, chosen, repetitions, baselines, tfidf_by_rows))
    say(_summary(job, figures))
    return figures


def _summary(job: SweepJob, figures: Mapping[str, float]) -> str:
    """The result in a line, with its spread and everything that it is measured against."""
    metric = job.task.metric

    def over_seeds(arm: str) -> str:
        return f"{figures[f'{arm}test/{metric}_mean']:.3f} ± {figures[f'{arm}test/{metric}_std']:.3f}"

    beside = [f"TF-IDF {figures[f'tfidf/test/{metric}']:.3f}", f"majority {figures[f'majority/test/{metric}']:.3f}"]
    if job.sweep.random_weights_baseline:
        beside.insert(0, f"random weights {over_seeds('random_weights/')}")
    return f"{job.task_name}: test {metric} {over_seeds('')} over {job.sweep.num_seeds} seeds; {', '.join(beside)}"


def _baselines(job: SweepJob) -> tuple[dict[str, BaselineScores], dict[int, float]]:
    """Majority and TF-IDF at the main training size, and TF-IDF's test score at each size of the label efficiency."""
    path = job.run_folder / "baselines.json"
    if path.exists():
        saved = read_json(path)
        scores = {name: BaselineScores(**fields) for name, fields in saved["scores"].items()}
        return scores, {int(rows): test for rows, test in saved["tfidf_by_rows"].items()}
    metric, num_labels = job.task.metric, len(read_task_manifest(job.task_folder)["labels"])
    all_train, dev, test = (read_rows(job.task_folder, split) for split in ("train", "dev", "test"))
    train = all_train.first(job.task.num_train_rows)
    tfidf = tfidf_scores(train, dev, test, metric=metric, num_labels=num_labels)
    scores = {
        "majority": majority_scores(train, dev, test, metric=metric, num_labels=num_labels),
        "tfidf": tfidf,
    }
    assert tfidf.c is not None
    by_rows = {len(train): tfidf.test} if job.task.label_efficiency_rows else {}
    for rows in sorted(set(job.task.label_efficiency_rows) - {len(train)}):
        # As for the encoder, the configuration is the one chosen at the main size.
        fewer = all_train.first(rows)
        again = tfidf_scores(fewer, dev, test, metric=metric, num_labels=num_labels, choices_of_c=(tfidf.c,))
        by_rows[rows] = again.test
    write_json(
        path,
        {
            "scores": {name: asdict(baseline) for name, baseline in scores.items()},
            "tfidf_by_rows": {str(rows): test for rows, test in by_rows.items()},
        },
    )
    return scores, by_rows
