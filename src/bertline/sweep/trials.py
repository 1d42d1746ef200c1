"""One trial of the search: a point, fine-tuned and scored on dev. And the choice of the best points."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable

import optuna
import torch

from bertline.finetuning.finetune import DevCheck, DivergedError, fine_tune
from bertline.foundation.errors import MachineError
from bertline.foundation.files import read_json, write_json
from bertline.foundation.progress import say, warn
from bertline.foundation.seeds import seed_for
from bertline.sweep.bench import Bench
from bertline.sweep.config import SweepConfig
from bertline.sweep.job import Arm, SweepJob
from bertline.sweep.space import Params, space_of_arm, suggest
from bertline.sweep.studies import CURVE, REASON, best_trials, checks_of, step_of


def run_trial(bench: Bench, arm: Arm, trial: optuna.Trial) -> float:
    """Fine-tune the point of a trial; return its score on dev, NaN if it has none (see the trial's reason).

    The score is also in a file that the point names, so a trial whose process died after that is not run again. The
    same point has the same seed, and so the same score, in any process and order.

    Raises:
        optuna.TrialPruned: The pruner stopped the trial.
    """
    job, metric = bench.job, bench.job.task.metric
    params = suggest(trial, space_of_arm(job.sweep, job.task, arm))
    point = json.dumps(params, sort_keys=True)
    file = job.run_folder / "trials" / f"{arm}-{hashlib.sha256(point.encode()).hexdigest()[:16]}.json"
    if file.exists():
        outcome = read_json(file)
        trial.set_user_attr(CURVE, outcome["curve"])
        return float(outcome["score"])
    label = f"{job.task_name}, {arm}, trial {trial.number}"
    started = time.monotonic()
    seed = seed_for(job.sweep.seed, "trial", point)
    run = bench.run(arm, params, num_train_rows=job.task.num_train_rows, seed=seed, checks=checks_of(job.sweep.pruner))
    curve: list[list[float]] = []
    try:
        score = fine_tune(run, on_check=report_and_prune(trial, job.sweep, metric, curve)).dev_scores[metric]
    except optuna.TrialPruned:
        trial.set_user_attr(CURVE, curve)
        say(f"{label}: pruned after {curve[-1][0]:.0%} of its schedule, at {curve[-1][1]:.3f} on dev ({point})")
        raise
    except (DivergedError, torch.OutOfMemoryError) as error:
        # A retry would fail too, so the point gets no score, and the other trials continue.
        reason = str(error).partition("\n")[0]
        trial.set_user_attr(REASON, reason)
        warn(f"{label}: {reason} ({point})")
        return math.nan
    except optuna.exceptions.UpdateFinishedTrialError:
        raise  # others have failed the trial, because this machine was silent
    except Exception as error:
        # Its message may have the user's text, which stays out of the records that a server gets.
        trial.set_user_attr(REASON, f"It ended with a {type(error).__name__}, see the log of the sweep.")
        raise
    if math.isnan(score):
        trial.set_user_attr(REASON, "Its score on dev is not a number.")
        warn(f"{label}: its score on dev is not a number ({point})")
        return score
    write_json(file, {"score": score, "curve": curve})
    trial.set_user_attr(CURVE, curve)
    say(f"{label}: {score:.3f} on dev in {time.monotonic() - started:.0f} s ({point})")
    return score


def report_and_prune(
    trial: optuna.Trial, sweep: SweepConfig, metric: str, curve: list[list[float]]
) -> Callable[[DevCheck], None]:
    """Return a callback that reports dev scores to the study, and stops the trial if the pruner decides so.

    The callback of optuna-integration imports another Lightning package than the one used here.

    Args:
        curve: List to which `[completed fraction of the schedule, score]` of each dev check is appended.
    """

    def on_check(check: DevCheck) -> None:
        curve.append([check.share, check.scores[metric]])
        if (step := step_of(sweep.pruner, check)) is not None:
            trial.report(check.scores[metric], step)
            # At the end of its schedule a trial is finished, whatever its score.
            if check.share < 1 and trial.should_prune():
                raise optuna.TrialPruned

    return on_check


def best_points(job: SweepJob, studies: dict[Arm, optuna.Study]) -> dict[Arm, list[Params]]:
    """Return the best points of each arm on dev; an arm without a finished trial is left out.

    Raises:
        MachineError: No trial of the encoder finished.
    """
    chosen: dict[Arm, list[Params]] = {}
    for arm, study in studies.items():
        if not space_of_arm(job.sweep, job.task, arm):
            chosen[arm] = [{}]
            continue
        best = best_trials(study, job.sweep.num_best)
        if not best:
            problem = f"{job.task_name}: no trial of {arm} finished (see the messages above)"
            if arm == "encoder":
                raise MachineError(f"{problem}. Run the stage again, with lower rates in sweep.space if they diverged.")
            warn(f"{problem}; it is left out")
            continue
        chosen[arm] = [dict(trial.params) for trial in best]
        point = json.dumps(best[0].params)
        say(f"{job.task_name}, {arm}: best dev {job.task.metric} {best[0].value:.3f} with {point}")
    return chosen
