"""Processes of sweeps that are to be killed, or to fail; what is handed to a process must be importable."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCKED = "blocked"
"""File of the run folder that says that the process waits to be killed."""


def die(*_: Any) -> None:
    """In place of a helper's main function: be killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def fail(plan: Any, number: int, identity: str, connection: Any) -> None:
    """In place of a helper's main function: end with an error for people."""
    from bertline.foundation.errors import DataError

    connection.send(DataError("row 3 has no text"))


def brief_job(folder: Path, run: str = "run", **changes: Any) -> Any:
    """A sweep of `write_inputs(folder)` in two passes: what is killed is to last a while, and need not learn."""
    import finetuning_inputs as inputs

    workers = changes.pop("sweep_workers", 1)
    sweep = inputs.sweep(fine_tuning=inputs.fine_tuning(num_epochs=2))
    return inputs.sweep_job(
        folder, folder / run, **{"sweep": sweep, "runtime": inputs.runtime(sweep_workers=workers), **changes}
    )


def result_of(job: Any) -> Any:
    """result.json without the seconds that things took, and without trials that were lost and done again."""
    result = json.loads((job.run_folder / "result" / "result.json").read_text())
    result["encoders"]["tables"] = []
    for arm in result["arms"].values():
        arm.pop("ms_per_row")
        arm["trials"] = [trial for trial in arm["trials"] if trial["state"] != "FAIL"]
        for entry in (*arm["trials"], *arm["seeds"]):
            entry.pop("time_s")
            entry.pop("number", None)
        arm["trials"].sort(key=lambda trial: json.dumps(trial["params"]))
    return result


def studies_of(job: Any) -> list[Any]:
    import optuna

    from bertline.sweep.studies import open_storage

    storage = open_storage(job.studies_url)
    return [optuna.load_study(study_name=name, storage=storage) for name in optuna.get_all_study_names(storage)]


def assert_each_done_once(job: Any) -> None:
    """No trial or repetition of a finished sweep was done twice, and none is left."""
    from optuna.trial import TrialState

    import finetuning_inputs as inputs
    from bertline.sweep.studies import planned_trials

    for study in studies_of(job):
        complete = planned_trials(study, (TrialState.COMPLETE,))
        assert max(Counter(trial.user_attrs["slot"] for trial in complete).values()) == 1
        assert not study.get_trials(states=(TrialState.RUNNING, TrialState.WAITING))
    events = Counter((event["arm"], event["kind"], event["number"]) for event in inputs.events_of(job))
    assert max(events.values()) == 1


def blocking(job: Any, function: Callable[..., Any], num_calls: int) -> Callable[..., Any]:
    """A function whose call after `num_calls` others says that it is reached, and waits to be killed."""
    left = num_calls

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal left
        if left == 0:
            (job.run_folder / BLOCKED).touch()
            time.sleep(600)
        left -= 1
        return function(*args, **options)

    return counted


def sweep_until(job: Any, phase: str, num_calls: int, is_leader: bool = True) -> None:
    """Lead a sweep, or join it, and in a phase ("trials", "repetitions", "tests") wait to be killed, with work in hand.

    The file `led` says that the sweep is led, as a run folder's lock does.
    """
    from bertline.sweep import repetitions, workers
    from bertline.sweep.run import run_sweep

    if phase == "tests":
        repetitions._read_test = blocking(job, repetitions._read_test, num_calls)
    elif phase:
        module = {"trials": workers, "repetitions": repetitions}[phase]
        module.fine_tune = blocking(job, module.fine_tune, num_calls)  # type: ignore[attr-defined]
    _quick_to_notice()
    if not is_leader:
        join_until_finished(job)
        return
    (job.run_folder / "led").write_text(str(os.getpid()))
    run_sweep(job)


def join_until_finished(job: Any) -> None:
    """Join a sweep, and lead it if its leader has died: what the tasks of a job array do."""
    from bertline.sweep.run import run_sweep
    from bertline.sweep.workers import join_sweep

    _quick_to_notice()
    led = job.run_folder / "led"

    def is_led() -> bool:
        if not led.exists():
            return True
        status = Path(f"/proc/{led.read_text()}/stat")
        return status.exists() and status.read_text().split(") ")[1][0] != "Z"

    while not join_sweep(job, is_led=is_led):
        try:
            (job.run_folder / "next").touch(exist_ok=False)
        except FileExistsError:  # another takes the lead
            time.sleep(0.5)
            continue
        led.write_text(str(os.getpid()))
        run_sweep(job)
        return


def take_all(url: str, sweep: Any) -> None:
    """Take the trials of a study, as the worker of one machine, until none waits."""
    from bertline.sweep.studies import open_storage, open_study, run_next

    study = open_study(open_storage(url), "task/run/encoder", sweep)
    while run_next(study, lambda trial: trial.suggest_float("x", 0, 100) ** 2, sweep, url):
        pass


def _quick_to_notice() -> None:
    """A silent process counts as dead after seconds."""
    from bertline.sweep import studies

    studies._HEARTBEAT_S, studies._GRACE_S = 1, 4


def baselines_of(kind: Any, train: Any, dev: Any, tests: Any, encoder: Any = None) -> Any:
    """The baselines of a task, each with predictions for dev and every test split."""
    from bertline.baselines.base import BaselineInputs

    given = BaselineInputs(kind=kind, train=train, dev=dev, tests=tests, encoder=encoder)
    return kind.baselines(given)


def stoppable_sweep(job: Any, output: Path) -> None:
    """Lead a sweep as a command does, with its output in a file."""
    from types import SimpleNamespace

    from bertline.run.stopping import in_one_line
    from bertline.sweep import workers
    from bertline.sweep.run import run_sweep
    from fork_server import forking

    workers.multiprocessing = SimpleNamespace(get_context=lambda _: forking())  # type: ignore[attr-defined]
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)

    def run() -> None:
        run_sweep(job)

    in_one_line(run)
