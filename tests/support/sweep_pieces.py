"""Pieces of work for the workers of a sweep; a worker finds them by their names."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def say_who(bench: Any, argument: Any) -> tuple[int, Any]:
    """The number of the worker, and what it was given."""
    return bench.worker, argument


def die_the_first_time(bench: Any, path: Path) -> str:
    """Kill the worker, unless the file is there already."""
    if not path.exists():
        path.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def wait_for(bench: Any, path: Path) -> str:
    """Wait until a file is there."""
    while not path.exists():
        time.sleep(0.05)
    return "done"


def begin_and_wait_for(bench: Any, paths: tuple[Path, Path]) -> str:
    """Leave the first file, and wait until the second one is there."""
    paths[0].touch()
    return wait_for(bench, paths[1])


def die(bench: Any, argument: Any) -> None:
    """Kill the worker."""
    os.kill(os.getpid(), signal.SIGKILL)


class UnsendableError(Exception):
    """Cannot be made again from its arguments, which is what sending does."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def fail(bench: Any, error: Exception | None) -> None:
    """Raise what was given, or what cannot be sent."""
    raise error if error is not None else UnsendableError("the disk is full", "really")


def tune(url: str, name: str, sweep: Any) -> None:
    """Take the trials of a study and score them, as the worker of one machine, until none is left."""
    import optuna
    from optuna.trial import TrialState

    from bertline.sweep.members import member_name
    from bertline.sweep.store import StudyStore
    from bertline.sweep.study import has_trials, open_study, take_trial

    store = StudyStore(url, waits=True)
    study = open_study(store, name, sweep)
    while True:
        taken = take_trial(store, study, member_name())
        if taken is None:
            if not has_trials(study, TrialState.WAITING, TrialState.RUNNING):
                return
            time.sleep(0.2)
            continue
        study.get_trials(deepcopy=False)
        trial = optuna.Trial(study, taken._trial_id)
        x = trial.suggest_float("x", 0, 100)
        with store.beating(lambda: store.storage.record_heartbeat(taken._trial_id)):  # noqa: B023
            for step in range(3):
                trial.report(x + step, step)
                time.sleep(0.05)
        trial.set_user_attr("curve", [[1.0, x]])
        study.tell(trial, x * x, skip_if_finished=True)


def lead(job: Any, log: Path, leader: Path) -> None:
    """Lead a sweep, and say so in a file."""
    from bertline.sweep.members import member_name
    from bertline.sweep.run import run_sweep

    sys.stdout = log.open("a", buffering=1)
    leader.write_text(member_name())
    run_sweep(job, in_process=True)


def help_along(job: Any, log: Path, leader: Path) -> None:
    """Join a sweep, and lead it if its leader has died: what the tasks of a job array do."""
    from bertline.sweep.crew import join_sweep
    from bertline.sweep.members import has_died

    def is_led() -> bool:
        return not leader.exists() or not has_died(leader.read_text())

    sys.stdout = log.open("a", buffering=1)
    while not join_sweep(job, is_led=is_led, in_process=True):
        print("nobody leads")
        try:
            leader.with_name("next").touch(exist_ok=False)
        except FileExistsError:  # another has the lead, or takes it now
            time.sleep(0.5)
            continue
        lead(job, log, leader)
        return
    print("the sweep is finished")
