"""Pieces of work for the workers of a sweep; a worker finds them by their names."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from servers import wait_until

_LONGEST_WAIT_S = 600.0
"""For a test that is to go on or to kill this process, and may have failed."""


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


def sweep_until(job: Any, num_events: int) -> None:
    """Run a sweep; once it has so many events, it waits to be killed before it adds another one.

    So the kill comes before the sweep ends, and as a rule while trials run.
    """
    from bertline.foundation.files import read_json_lines
    from bertline.sweep import store
    from bertline.sweep.run import run_sweep

    add = store.add_missing_events

    def added(run_folder: Path, events: Any) -> None:
        if len(read_json_lines(run_folder / "events.jsonl")) >= num_events:
            time.sleep(_LONGEST_WAIT_S)
        add(run_folder, events)

    store.add_missing_events = added
    run_sweep(job)


def brief_job(folder: Path, run: str = "run", **runtime: Any) -> Any:
    """A sweep of `write_inputs(folder)` in two passes: what is killed is to last a while, and need not learn."""
    import finetuning_inputs as inputs

    sweep = inputs.sweep(fine_tuning=inputs.fine_tuning(num_epochs=2))
    return inputs.sweep_job(folder, folder / run, sweep=sweep, runtime=inputs.runtime(**runtime))


def start_until(folder: Path, num_events: int, num_workers: int) -> Any:
    """Start that sweep as a process, which comes to so many events and is to be killed then."""
    from fork_server import forking

    job = brief_job(folder, sweep_workers=num_workers)
    process = forking().Process(target=sweep_until, args=(job, num_events))
    process.start()
    return process


class Held(NamedTuple):
    """When a process waits, and for what."""

    text: str
    num_lines: int
    until: Callable[[], bool]


class Log(io.TextIOBase):
    """A file to print to; after so many lines with a text, the process waits until a condition holds."""

    def __init__(self, path: Path, held: Held) -> None:
        self._file = path.open("a", buffering=1)
        self._held, self._said = held, ""

    def write(self, text: str) -> int:
        self._file.write(text)
        self._said += text
        if text.endswith("\n") and self._said.count(self._held.text) >= self._held.num_lines:
            wait_until(self._held.until, timeout_s=_LONGEST_WAIT_S, every_s=0.02)
        return len(text)

    def flush(self) -> None:
        self._file.flush()


def never() -> bool:
    """For `Held`: until the process is killed."""
    return False


def all_say(texts: Mapping[Path, str]) -> bool:
    """Whether each of these files has its text."""
    return all(path.exists() and text in path.read_text() for path, text in texts.items())


def lead(job: Any, log: Path, leader: Path, held: Held) -> None:
    """Lead a sweep, and say so in a file."""
    from bertline.sweep.members import member_name
    from bertline.sweep.run import run_sweep

    sys.stdout = Log(log, held)
    leader.write_text(member_name())
    run_sweep(job, in_process=True)


def help_along(job: Any, log: Path, leader: Path, held: Held) -> None:
    """Join a sweep, and lead it if its leader has died: what the tasks of a job array do."""
    from bertline.sweep.crew import join_sweep
    from bertline.sweep.members import has_died

    def is_led() -> bool:
        return not leader.exists() or not has_died(leader.read_text())

    sys.stdout = Log(log, held)
    while not join_sweep(job, is_led=is_led, in_process=True):
        print("nobody leads")
        try:
            leader.with_name("next").touch(exist_ok=False)
        except FileExistsError:  # another has the lead, or takes it now
            time.sleep(0.5)
            continue
        lead(job, log, leader, held)
        return
    print("the sweep is finished")
