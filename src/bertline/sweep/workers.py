"""The processes that share a sweep: one leads and works, its helpers work, and on other machines
more of them join.

All take what waits in the studies. The leader alone plans: it enqueues trials, chooses on dev what
is repeated and what wins, reads test, and writes the result.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from secrets import token_hex
from typing import Any

import optuna
import torch
from optuna.trial import FrozenTrial

from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.job import DevCheck, DivergedError
from bertline.foundation.errors import BertlineError, ConfigError, MachineError
from bertline.foundation.files import read_json, write_atomically, write_json
from bertline.foundation.parallel import end_with_parent
from bertline.foundation.progress import say, warn
from bertline.foundation.seeds import seed_for
from bertline.sweep import studies
from bertline.sweep.bench import Arm, Bench, PlannedSweep, num_sweep_workers, plan_of
from bertline.sweep.config import SweepConfig
from bertline.sweep.job import SweepJob
from bertline.sweep.repetitions import Repetition, repetition_slots, run_repetition
from bertline.sweep.space import Params, planned_points, space_of_arm, suggest
from bertline.sweep.studies import CURVE, ENDED, LIVE, REASON, Slot


def run_trial(bench: Bench, arm: Arm, trial: optuna.Trial) -> float:
    """Fine-tune the point of a trial; return its score on dev, NaN if it has none (see the trial's
    reason).

    The score is also in a file that the point names, so a trial whose process died after that is
    not run again. The same point has the same seed, and so the same score, in any process and
    order.
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
    run = bench.run(
        arm, params, num_train_rows=job.task.num_train_rows, seed=seed, checks=studies.checks_of(job.sweep.pruner)
    )
    saved = job.checkpoints / file.stem
    curve: list[list[float]] = []
    reason = "Its score on dev is not a number."
    try:
        if run.dev is None:
            score = bench.out_of_fold(arm, params, seed=seed, title=label).scores[metric]
            curve.append([1.0, score])
        else:
            on_check = report_and_prune(trial, job.sweep, metric, curve)
            score = fine_tune(replace(run, checkpoints=saved, title=label), on_check=on_check).dev.scores[metric]
    except optuna.TrialPruned:
        shutil.rmtree(saved, ignore_errors=True)
        trial.set_user_attr(CURVE, curve)
        say(f"{label}: pruned after {curve[-1][0]:.0%} of its schedule, at {curve[-1][1]:.3f} on dev ({point})")
        raise
    except (DivergedError, torch.OutOfMemoryError) as error:
        score = math.nan
        reason = str(error).partition("\n")[0]
    if math.isnan(score):  # a retry would fail too, so the point gets no score, and the other trials continue
        trial.set_user_attr(REASON, reason)
        warn(f"{label}: {reason} ({point})")
        return score
    write_json(file, {"score": score, "curve": curve})
    shutil.rmtree(saved, ignore_errors=True)
    trial.set_user_attr(CURVE, curve)
    say(f"{label}: {score:.3f} on dev in {time.monotonic() - started:.0f} s ({point})")
    return score


def report_and_prune(
    trial: optuna.Trial, sweep: SweepConfig, metric: str, curve: list[list[float]]
) -> Callable[[DevCheck], None]:
    """Return a callback that reports dev scores to the study, and stops the trial if the pruner
    decides so.

    It appends `[completed fraction of the schedule, score]` of each dev check to `curve`. (The
    callback of optuna-integration imports another Lightning package.)
    """

    def on_check(check: DevCheck) -> None:
        curve.append([check.share, check.scores[metric]])
        if (step := studies.step_of(sweep.pruner, check)) is not None:
            trial.report(check.scores[metric], step)
            # At the end of its schedule a trial is finished, whatever its score.
            if check.share < 1 and trial.should_prune():
                raise optuna.TrialPruned

    return on_check


def best_points(job: SweepJob, arms: dict[Arm, optuna.Study]) -> dict[Arm, list[Params]]:
    """Return the best points of each arm on dev; an arm without a finished trial is left out."""
    chosen: dict[Arm, list[Params]] = {}
    for arm, study in arms.items():
        if not space_of_arm(job.sweep, job.task, arm):
            chosen[arm] = [{}]
            continue
        best = studies.best_trials(study, job.sweep.num_best)
        if not best:
            problem = f"{job.task_name}: no trial of {arm} finished (see the messages above)"
            if arm == "encoder":
                rate = job.sweep.deciding(job.task_name, job.task, "learning_rate")
                raise MachineError(f"{problem}. Run the stage again; if they diverged, with a lower {rate}.")
            warn(f"{problem}; it is left out")
            continue
        chosen[arm] = [dict(trial.params) for trial in best]
        point = json.dumps(best[0].params)
        say(f"{job.task_name}, {arm}: best dev {job.task.metric} {best[0].value:.3f} with {point}")
    return chosen


_LOOK_AGAIN_S = 1.0
_SAVED_WITHIN_S = 300.0
"""How long a stopped sweep waits for helpers that save what they train, after a step or an
evaluation on dev."""
_VISIBLE_WITHIN_S = 120.0
"""How long another machine's file may take to be seen here: NFS caches folders for a minute."""
_IDENTITY = "study"
"""File of the run folder with its identity; it is there when others may join."""
_SEEDS = "seeds"
"""Name of the study of the best configurations, beside those of the arms."""
FINISHED = "finished"
"""Attribute of the seeds' study: the leader has written the result."""


class Worker:
    """One process's view of a sweep: its data and device, and the studies from which it takes what
    waits.

    Args:
        number: Number of the process among those of this machine, which selects its device.
        identity: Identity of the run folder: one that is deleted and made again has other studies.
    """

    def __init__(self, plan: PlannedSweep, number: int, identity: str) -> None:
        self.job, self.bench = plan.job, Bench(plan, worker=number)
        prefix = f"{self.job.task_name}/{self.job.run_folder.name}-{identity}"
        self.storage = studies.open_storage(self.job.studies_url)
        self.arms: dict[Arm, optuna.Study] = {
            arm: studies.open_study(self.storage, f"{prefix}/{arm}", self.job.sweep) for arm in plan.starts
        }
        self.seeds = studies.open_study(self.storage, f"{prefix}/{_SEEDS}", self.job.sweep)

    def run_next(self) -> bool:
        """Run the next trial of the first arm in which one waits, else the next seed; return False
        if nothing waits."""
        objectives: list[tuple[optuna.Study, Callable[[optuna.Trial], float]]] = [
            *((study, partial(run_trial, self.bench, arm)) for arm, study in self.arms.items()),
            (self.seeds, partial(run_repetition, self.bench)),
        ]
        for study, objective in objectives:
            if studies.run_next(study, objective, self.job.sweep, self.job.studies_url):
                if task := os.environ.get("BERTLINE_JOIN"):  # by which a task of a job array is known to make progress
                    with (self.job.run_folder / f"{task}.done").open("a") as handle:
                        handle.write(".")
                return True
        return False

    def fail_trials(self, process: str | None = None) -> None:
        """Fail the running trials of a process of this machine that has died; None: all that run."""
        for study in (*self.arms.values(), self.seeds):
            studies.fail_trials(study, self.job.studies_url, process)

    def look_at(self, helpers: list[_Helper]) -> None:
        """Remove the helpers that were killed, and fail their trials; the others continue
        without them."""
        for helper in [helper for helper in helpers if helper.process.exitcode is not None]:
            with suppress(EOFError, ConnectionError):
                raise helper.connection.recv()
            warn(
                f"worker {helper.number} of the sweep ended with exit code {helper.process.exitcode}; the others "
                "continue without it. If memory is short, run fewer (runtime.sweep_workers)"
            )
            helpers.remove(helper)
            self.fail_trials(helper.name)


class Leader(Worker):
    """The process that plans a sweep, and works at it."""

    def __init__(self, plan: PlannedSweep, identity: str) -> None:
        super().__init__(plan, 0, identity)
        self.helpers: list[_Helper] = []
        self._slots: dict[str, list[Slot]] = {self.seeds.study_name: []}
        self._known: set[tuple[str, int]] = set()

    def queue_trials(self) -> None:
        """Enqueue the planned trials that have not ended; those that failed have another chance."""
        job = self.job
        if studies.configured_url(job.studies_url).get_backend_name() == "sqlite":
            self.fail_trials()  # on the only machine this process leads: whatever runs belongs to one that has died
        for arm, study in self.arms.items():
            study.set_user_attr("workers_matter", studies.workers_matter(job.sweep))
            points = planned_points(job.sweep, job.task, arm)
            self._slots[study.study_name] = [Slot(number, point) for number, point in enumerate(points)]
            studies.enqueue_missing(study, self._slots[study.study_name], failed_too=True)

    def run_trials(self) -> dict[Arm, list[FrozenTrial]]:
        """Work until all trials have ended, and return them."""
        self._work_at(list(self.arms.values()))
        return {arm: studies.planned_trials(study, ENDED) for arm, study in self.arms.items()}

    def queue_repetitions(self, repetitions: Sequence[Repetition]) -> None:
        """Enqueue the repetitions that have not ended; those that failed have another chance."""
        slots = repetition_slots(self.bench.plan, repetitions)
        if slots != self._slots[self.seeds.study_name]:
            self._slots[self.seeds.study_name] = slots
            studies.enqueue_missing(self.seeds, slots, failed_too=True)

    def run_repetitions(self, repetitions: Sequence[Repetition]) -> None:
        """Work until all of these repetitions have ended."""
        self.queue_repetitions(repetitions)
        self._work_at([self.seeds])
        for slot in self._slots[self.seeds.study_name]:  # other machines' files may be seen here later
            file, until = self.job.run_folder / str(slot.name), time.monotonic() + _VISIBLE_WITHIN_S
            while not _is_visible(file):
                if time.monotonic() > until:
                    raise MachineError(
                        f"{file} was written by another machine and is not seen here. All machines of a sweep must "
                        "share its run folder."
                    )
                time.sleep(_LOOK_AGAIN_S)

    def _work_at(self, wanted: Sequence[optuna.Study]) -> None:
        while True:
            self.look_at(self.helpers)
            for study in wanted:
                studies.enqueue_missing(study, self._slots[study.study_name])
            ended = ((arm, trial) for arm, study in self.arms.items() for trial in studies.planned_trials(study, ENDED))
            events = (studies.trial_event(arm, trial, self.job.task.metric) for arm, trial in ended)
            studies.add_missing_events(self.job.run_folder, events)
            if self.run_next():
                continue
            if not any(
                studies.planned_trials(study, LIVE) or studies.missing(study, self._slots[study.study_name])
                for study in wanted
            ):
                return
            for study in wanted:
                studies.fail_silent_trials(study, self.storage, self._known)
            time.sleep(_LOOK_AGAIN_S)


@contextmanager
def leading(plan: PlannedSweep) -> Iterator[Leader]:
    """Open the studies, enqueue the planned trials, and start the helpers, which end with the
    block."""
    file = plan.job.run_folder / _IDENTITY
    identity = file.read_text(encoding="utf-8") if file.exists() else token_hex(4)
    with studies.reached(plan.job.studies_url):
        leader = Leader(plan, identity)
        leader.queue_trials()
        write_atomically(file, identity)
        with _helpers(plan, identity) as leader.helpers:
            yield leader


def join_sweep(job: SweepJob, *, is_led: Callable[[], bool]) -> bool:
    """Help with a sweep that another process leads, on any machine that shares its run folder and
    its database.

    Args:
        is_led: Whether a process leads the sweep now. Called about once a second.

    Returns:
        Whether the sweep is finished. False: nobody leads it any more; what this process had begun
        is done.

    Raises:
        ConfigError: The studies are in a SQLite file.
        MachineError: The studies cannot be read or written.
    """
    if studies.configured_url(job.studies_url).get_backend_name() == "sqlite":
        raise ConfigError(
            "tracking.studies_url is a SQLite file, which several machines cannot share. Give "
            "postgresql://HOST/DATABASE, or let one machine do the sweep."
        )
    file = job.run_folder / _IDENTITY
    while not _is_visible(file):
        if not is_led():
            return False
        time.sleep(_LOOK_AGAIN_S)
    plan, identity = plan_of(job), file.read_text(encoding="utf-8")
    with studies.reached(job.studies_url), _helpers(plan, identity) as helpers:
        worker = Worker(plan, 0, identity)
        while FINISHED not in worker.seeds.user_attrs:
            if not is_led():
                return False
            worker.look_at(helpers)
            if not worker.run_next():
                time.sleep(_LOOK_AGAIN_S)
        return True


class _Helper:
    """A process that works until its end of a pipe is closed."""

    def __init__(self, plan: PlannedSweep, number: int, identity: str) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self.number = number
        self.connection, theirs = context.Pipe()
        arguments = (plan, number, identity, theirs)
        self.process = context.Process(target=_help, args=arguments, name=f"sweep-{number}", daemon=True)
        self.process.start()
        self.name = studies.process_name(self.process.pid)
        theirs.close()


@contextmanager
def _helpers(plan: PlannedSweep, identity: str) -> Iterator[list[_Helper]]:
    helpers: list[_Helper] = []
    try:
        for number in range(1, num_sweep_workers(plan.job.runtime)):
            helpers.append(_Helper(plan, number, identity))
        yield helpers
    except BaseException:
        for helper in helpers:
            helper.process.terminate()  # one that trains saves that first; the next leader does their trials again
        until = time.monotonic() + _SAVED_WITHIN_S
        for helper in helpers:
            helper.process.join(max(0.0, until - time.monotonic()))
            helper.process.kill()
        raise
    for helper in helpers:
        helper.connection.close()
    for helper in helpers:
        helper.process.join()  # what it has begun is worth keeping


def _help(plan: PlannedSweep, number: int, identity: str, connection: Connection) -> None:
    """Main function of a helper process."""
    end_with_parent()
    try:
        with studies.reached(plan.job.studies_url):
            worker = Worker(plan, number, identity)
            while not connection.poll(0 if worker.run_next() else _LOOK_AGAIN_S):
                pass
    except KeyboardInterrupt:
        return
    except BertlineError as error:
        connection.send(error)
    except Exception as error:
        traceback.print_exc()
        # Not every exception can be pickled, so only its message is sent; the traceback is in the
        # log.
        connection.send(RuntimeError(f"{type(error).__name__}: {error}"))


def _is_visible(path: Path) -> bool:
    """Return whether a file is there; listing its folders first makes NFS look at what other
    machines wrote."""
    for folder in (path.parent.parent, path.parent):
        with suppress(OSError):
            next(folder.iterdir(), None)
    return path.exists()
