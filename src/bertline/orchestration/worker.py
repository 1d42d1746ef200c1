"""The process that does a stage's long work: `python -m bertline.orchestration.worker RUN_FOLDER MODULE:FUNCTION`.

The recipe names the function. The process is re-entrant and reads nothing but its run folder and the inputs named
there. A queued or resumed job therefore never sees a later configuration, and a killed one is resumed. Inputs with
other content than the frozen one, before the work or after it, are an error.
"""

from __future__ import annotations

import gc
import signal

from bertline.foundation.signals import RECEIVED, STOP_SIGNALS, hold_signals, receive_signals

if __name__ == "__main__":
    # While the imports run, a Ctrl-C that the recipe passes on ends the process; Python would print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    hold_signals()
    gc.disable()  # until `_work` has imported everything

import dataclasses
import os
import pkgutil
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from bertline.foundation.errors import ArtifactError, BertlineError, PeerLostError
from bertline.foundation.files import sha256_of_path
from bertline.foundation.importing import uncollected_imports
from bertline.foundation.progress import say, warn
from bertline.foundation.system_load import load_sampled, node_name
from bertline.foundation.work import Work
from bertline.orchestration.changed import changed_inputs, missing_inputs, shown
from bertline.orchestration.config import PipelineConfig, pipeline_config
from bertline.orchestration.ownership import ALREADY_RUNNING, hold_lock, is_locked
from bertline.orchestration.provenance import write_provenance
from bertline.orchestration.recording import end_without_recipe
from bertline.orchestration.stages import Stage, stage_named
from bertline.orchestration.status import (
    EXIT_STATUS,
    RESULT_NAME,
    TO_BE_REQUEUED,
    Status,
    read_status,
    write_status,
)
from bertline.orchestration.stopping import (
    COULD_NOT_WRITE,
    WORK_STOPPED,
    give_up_streams,
    say_last,
    silence_other_loggers,
)
from bertline.training.environment import start_compiler
from bertline.training.nodes import adopt_srun_ranks

_ATTEMPTS, _AGAIN_S = 4, 0.5
_JOINS = "BERTLINE_JOIN" in os.environ
"""Whether this process takes a share of work that another machine leads, instead of ending."""


def main(folder: Path, function: str) -> int:
    """Do the work of a run folder; returns the exit status of the process.

    Args:
        folder: Run folder with a frozen `config.yaml`.
        function: Import path of a function of a `Work`, such as `bertline.pretraining.run:run`.
    """
    adopt_srun_ranks(os.environ)
    if int(os.environ.get("RANK", "0")) > 0:
        # Other ranks write nothing, the status neither. Were a stop a failure of theirs, torchrun would end the first
        # one, which is still writing.
        with suppress(KeyboardInterrupt):
            try:
                _work(function, *_frozen(folder), folder)
            except BertlineError as error:
                print(f"error: rank {os.environ['RANK']}: {error}", file=sys.stderr, flush=True)
                return EXIT_STATUS["failed"]
        return EXIT_STATUS["finished"]
    if _JOINS:
        return _lead_or_join(folder, function)
    for attempt in range(_ATTEMPTS):
        with hold_lock(folder) as held:
            if held:
                return _lead(folder, function)
        if attempt + 1 < _ATTEMPTS:  # who only looks whether somebody works here holds the lock for a moment, too
            time.sleep(_AGAIN_S)
    return ALREADY_RUNNING


def _lead_or_join(folder: Path, function: str) -> int:
    """Lead the work of a run folder, or take a share of it while another machine leads."""
    if __name__ == "__main__":
        receive_signals(_stop)
    try:
        while True:
            with hold_lock(folder) as held:
                if held:
                    return _lead(folder, function)
            frozen, config = _frozen(folder)
            if _joined(function, frozen, config, folder):
                return EXIT_STATUS["finished"]
    except BertlineError as error:  # of this machine; the others continue
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_STATUS["failed"]
    except KeyboardInterrupt as error:
        with suppress(OSError):
            say(f"this task lets go of what it had in progress: {error}")
        return TO_BE_REQUEUED


def _lead(folder: Path, function: str) -> int:
    """Do the work of a run folder, holding its lock; returns the exit status of the process."""
    # Under the lock: until then another run may still take this folder over, checkpoints and all.
    frozen, config = _frozen(folder)
    before = read_status(folder)
    if _JOINS and before.state in ("finished", "failed"):
        return EXIT_STATUS[before.state]  # the leader has just ended
    if _JOINS:
        _write_to(folder / "log")
    if before.inputs_changed:
        return _end(folder, before)
    # What it worked before it was stopped or requeued counts too.
    started_s = time.time() - (before.work_s or 0.0 if before.state != "finished" else 0.0)
    try:
        write_status(folder, Status(state="running", pid=os.getpid(), started_s=started_s))
        if changed := changed_inputs(frozen) + missing_inputs(frozen):
            raise ArtifactError(
                f"what this run reads changed after it was opened: {shown(changed)}. Run the same command again: "
                "it opens the run for what is there now."
            )
    except BertlineError as error:
        return _end(folder, Status(state="failed", message=str(error)))
    status = _end_of_work(function, frozen, config, folder)
    exit_status = _end(folder, dataclasses.replace(status, started_s=started_s, ended_s=time.time()))
    _end_records(folder, frozen, config)
    return exit_status


def _end_of_work(function: str, frozen: dict[str, Any], config: PipelineConfig, folder: Path) -> Status:
    """Do the work; if the inputs changed during it, the result is not used, whether the work finished or failed."""
    try:
        metrics = _work(function, frozen, config, folder)
        write_provenance(folder / RESULT_NAME, frozen, config.runtime)
        status = Status(state="finished", metrics=metrics)
    except PeerLostError as error:
        status = Status(state="stopped", message=str(error))
    except BertlineError as error:
        status = Status(state="failed", message=str(error) or type(error).__name__)
    except (KeyboardInterrupt, SystemExit) as error:
        # A bare exit status, or nothing, says no more than that a signal came.
        said = str(error) if str(error).strip("-0123456789") else "stopped by a signal"
        status = Status(state="stopped", message=said)
    except Exception as error:
        with suppress(OSError):
            traceback.print_exc()
        status = Status(state="failed", message=f"{type(error).__name__}: {error}")
    if changed := changed_inputs(frozen):
        of_both = (
            f"what this run reads changed while it ran: {shown(changed)}. Its result may be of the old content, the "
            "new one or both, and is not used. Run the same command again: it opens the run for what is there now. To "
            f"run it for the old content, put that back and delete {folder} first (for a sweep, also its studies in "
            f"tracking.studies_url, which have {folder.name} in their names)."
        )
        status = Status(state="failed", message=f"{status.message} {of_both}".lstrip(), inputs_changed=True)
    elif status.state == "finished" and (missing := missing_inputs(frozen)):
        of_nothing = (
            f"what this run reads is gone: {shown(missing)}. Whether it was the same until the end cannot be told. Run "
            "the same command again once the inputs are there: if their content is the same, the run is resumed."
        )
        status = Status(state="failed", message=of_nothing)
    elif status.state == "finished":
        status = dataclasses.replace(status, result_sha256=sha256_of_path(folder / RESULT_NAME))
    return status


def _end(folder: Path, status: Status) -> int:
    """Write how the work ended; if that fails, print it, and return the exit status of a failed write."""
    try:
        write_status(folder, status)
    except (BertlineError, OSError) as error:
        why = f"{status.message}\n" if status.message else ""
        say_last(f"{why}how the work ended ({status.state}) is not in the status: {error}")
        return COULD_NOT_WRITE
    if status.state == "stopped" and RECEIVED.first != signal.SIGINT:
        return TO_BE_REQUEUED
    return EXIT_STATUS[status.state]


def _end_records(folder: Path, frozen: dict[str, Any], config: PipelineConfig) -> None:
    """End the run in MLflow if the recipe is gone. The work is done: no error, and no signal, changes how it ended."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOP_SIGNALS}
    try:
        end_without_recipe(folder, frozen["stage"], config)
    except Exception as error:
        with suppress(OSError):
            warn(f"the record in MLflow could not be completed ({type(error).__name__}: {error})")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _frozen(folder: Path) -> tuple[dict[str, Any], PipelineConfig]:
    import yaml

    frozen = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    return frozen, pipeline_config(frozen["config"])


def _work(function: str, frozen: dict[str, Any], config: PipelineConfig, folder: Path) -> dict[str, float]:
    if __name__ == "__main__":  # from here on, a signal ends in the status
        receive_signals(_stop)
    if stage_named(frozen["stage"]).compiles:
        start_compiler(config.runtime, os.environ)  # before PyTorch is imported, which takes seconds
    with _load_sampled(stage_named(frozen["stage"]), config, folder):
        if __name__ == "__main__":
            with uncollected_imports():
                work = _imported(function)
            gc.enable()
        else:
            work = _imported(function)
        return work(_as_work(frozen, config, folder))


def _as_work(frozen: dict[str, Any], config: PipelineConfig, folder: Path) -> Work:
    inputs = {key: Path(path) for key, path in frozen["inputs"].items()}
    return Work(config=config, inputs=inputs, folder=folder, task_name=frozen["task_name"])


def _load_sampled(stage: Stage, config: PipelineConfig, folder: Path) -> AbstractContextManager[None]:
    """Sample the load of this machine in the first of its ranks, if that is to be recorded."""
    tracking = config.tracking
    if not (tracking.enabled and tracking.system_metrics) or os.environ.get("LOCAL_RANK", "0") != "0":
        return nullcontext()
    num_nodes = config.runtime.num_nodes if stage.on_several_devices else 1
    return load_sampled(folder, tracking.system_metrics_every_s, node=node_name(num_nodes, os.environ))


def _joined(function: str, frozen: dict[str, Any], config: PipelineConfig, folder: Path) -> bool:
    """Take a share of the work until it is finished (True), or until nobody leads it any more (False)."""
    module, _, _ = function.partition(":")
    join = _imported(f"{module}:join")
    return bool(join(_as_work(frozen, config, folder), is_led=lambda: is_locked(folder)))


def _write_to(log: Path) -> None:
    """Print to the run's log from now on: each task of a job array has a log of its own until it leads."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with log.open("a") as handle:
        for descriptor in (1, 2):
            os.dup2(handle.fileno(), descriptor)


def _imported(function: str) -> Callable[..., Any]:
    if not function.startswith("bertline.") or ":" not in function:
        raise BertlineError(f"{function!r} does not name the work; expected bertline.MODULE:FUNCTION")
    return pkgutil.resolve_name(function)


def _stop(number: int, frame: Any) -> None:
    """Stop at the next safe point: a terminal's Ctrl-C and a scheduler's TERM mean the same."""
    is_first = RECEIVED.first is None
    # A repetition would interrupt the writing of the status.
    if RECEIVED.note(number) or is_first:
        silence_other_loggers()
        raise KeyboardInterrupt(f"{WORK_STOPPED} {signal.Signals(number).name}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _stop)
    with suppress(OSError):  # a full disk; main reports it
        say(f"worker {os.getpid()} at {sys.argv[1]}")
    exit_status = main(Path(sys.argv[1]), sys.argv[2])
    give_up_streams()
    sys.exit(exit_status)
