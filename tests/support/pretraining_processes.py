"""Pretrainings as real processes, to be killed or to train together, without the seconds that a start-up takes.

Each training is a fork of a server (`fork_server.py`). What is handed to a process must be importable, so it lives here
and not in the tests.
"""

from __future__ import annotations

import functools
import io
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, BinaryIO

import torch

import pretraining_inputs
from bertline.pretraining import callbacks
from bertline.pretraining.data import StepBatch, StepDataset
from bertline.pretraining.module import PreTrainingLosses, PretrainingModule
from bertline.pretraining.probes import MaskPredictionProbe, ValidationProbe
from bertline.pretraining.run import run_pretraining
from bertline.training.interruption import ignore_signals_in_worker
from fork_server import forking
from ports import free_port
from servers import wait_until

UNTIL_A_RANK_IS_LOST: dict[str, Any] = {
    "pretrain__phases": [{"steps": 4000, "max_length": 16, "global_batch_size": 8}],
    "pretrain__checkpoint_every_steps": 10,
    "pretrain__validate_every_steps": 4000,
    "pretrain__mask_predictions": {"every_steps": 4000, "num_guesses": 1, "sentences": []},
}
"""Changes for a training that does not end in the time of a test, and saves before a rank is lost."""
_LONGEST_WAIT_S = 600.0
"""Of a test for its trainings, and of these for a test, so that neither waits for ever if the other one fails."""


def start(
    inputs: Path,
    run_folder: Path,
    changes: Mapping[str, Any],
    *,
    before: Callable[[], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> ForkServerProcess:
    """Start a pretraining on `inputs`; `before` is called in the process first. `output_of` says what it prints."""
    process = forking().Process(target=_train, args=(inputs, run_folder, changes, before, environment or {}))
    process.start()
    return process


def start_ranks(
    inputs: Path, run_folders: list[Path], changes: Mapping[str, Any], *, before: Callable[[], None] | None = None
) -> list[ForkServerProcess]:
    """Start processes that train together, as torchrun does: one for each run folder, which is the same as a rule."""
    size = len(run_folders)
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    changes = {**changes, "runtime__num_devices": size}
    return [
        start(
            inputs, folder, changes, before=before, environment={"RANK": str(rank), "LOCAL_RANK": str(rank), **shared}
        )
        for rank, folder in enumerate(run_folders)
    ]


def output_of(run_folder: Path) -> Path:
    """What the processes of a run have printed, errors too."""
    return run_folder.with_name(f"{run_folder.name}.log")


def finish(*processes: ForkServerProcess) -> None:
    """Wait until all have ended well."""
    for process in processes:
        process.join(timeout=600)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def kill(*processes: ForkServerProcess) -> None:
    """kill -9, and wait for the end."""
    for process in processes:
        process.kill()
    for process in processes:
        process.join(timeout=600)


def seconds_until_end(*processes: ForkServerProcess, most_s: float = 60.0) -> float:
    """Wait until all have ended, and say how long that took.

    Where the machine, or this process alone, stands still for a while, that is not counted: it says nothing of them.
    """
    waited_s = 0.0
    while any(process.is_alive() for process in processes) and waited_s < most_s:
        begun = time.monotonic()
        time.sleep(0.02)
        waited_s += min(time.monotonic() - begun, 0.1)
    return waited_s


def wait_for(condition: Callable[[], bool], process: ForkServerProcess) -> None:
    """Return as soon as the condition holds; fail if the process ends first, or if it takes ten minutes."""
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while not condition():
        # Asked again: the moment and the end may both have come while this process was kept waiting.
        assert process.is_alive() or condition(), f"it ended with {process.exitcode} before the moment came"
        assert time.monotonic() < deadline, "the moment did not come"
        time.sleep(0.001)


_ACTIONS: dict[str, Callable[..., None]] = {}


def in_process(action: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """Make a function for `before`: called here, it gives what the process calls."""
    _ACTIONS[action.__name__] = action

    @functools.wraps(action)
    def given(*arguments: Any, **named: Any) -> Callable[[], None]:
        return functools.partial(_act, action.__name__, arguments, named)

    return given


def _act(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    _ACTIONS[name](*arguments, **named)


@in_process
def all_of(*befores: Callable[[], None]) -> None:
    """Do each of these."""
    for before in befores:
        before()


MOMENTS = {
    "save": (torch, "save"),  # half of the checkpoint is in its file
    "fsync": (os, "fsync"),  # of records, checkpoint, digest, folder
    "replace": (os, "replace"),  # of digest, checkpoint, records
    "rename": (os, "rename"),  # of folders
    "unlink": (os, "unlink"),  # of old checkpoints
    "validation": (ValidationProbe, "probe"),
    "mask predictions": (MaskPredictionProbe, "_guesses"),
    "gradients": (PretrainingModule, "_clip"),
}
"""The calls in front of which a process dies."""


@in_process
def kill_at(moment: str, count: int) -> None:
    """Let the process kill itself, as -9 would, when it gets to one of `MOMENTS` for the nth time."""
    owner, name = MOMENTS[moment]
    original = getattr(owner, name)
    calls = 0

    def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            if moment == "save":
                _save_half(original, *args)
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, dying)


def _save_half(save: Callable[..., None], state: Any, handle: BinaryIO) -> None:
    whole = io.BytesIO()
    save(state, whole)
    handle.write(whole.getvalue()[: len(whole.getvalue()) // 2])
    handle.flush()


def _before_clipping(act: Callable[[PretrainingModule], None]) -> None:
    """In every step, when the gradients are there."""
    clip = PretrainingModule._clip

    def clipping(module: PretrainingModule) -> torch.Tensor:
        act(module)
        return clip(module)

    PretrainingModule._clip = clipping


@in_process
def hold_at_step(step: int, path: Path) -> None:
    """Once so many steps are done, let each rank leave `path`.RANK and wait until `path` is there.

    What a test does meanwhile happens in that step, and before the training ends, however slow the machine is. A rank
    that waits for ten minutes fails.
    """

    def hold(module: PretrainingModule) -> None:
        if module.finished_steps == step:
            path.with_name(f"{path.name}.{module.machine.ranks.rank}").touch()
            wait_until(path.exists, timeout_s=_LONGEST_WAIT_S, every_s=0.01)

    _before_clipping(hold)


@in_process
def slow_steps(seconds: float) -> None:
    """Let every step take so much longer."""
    _before_clipping(lambda module: time.sleep(seconds))


@in_process
def fail_at_step(step: int, *, rank: int) -> None:
    """Let this rank fail as it makes the batch of a step."""
    make = StepDataset.__getitem__

    def failing(dataset: StepDataset, index: int) -> StepBatch:
        if dataset.ranks.rank == rank and index == step:
            divmod(1, 0)
        return make(dataset, index)

    StepDataset.__getitem__ = failing


@in_process
def stop_as_a_worker() -> None:
    """Outside of training, let TERM raise KeyboardInterrupt, as in a stage."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@in_process
def limit_memory(*, tokens_of_ranks: list[int]) -> None:
    """Let training on more tokens at once be out of memory, as on a GPU."""
    callbacks.reports_lack_of_memory = lambda device: True
    forward, most = PreTrainingLosses.forward, tokens_of_ranks[int(os.environ.get("RANK", "0"))]

    def limited(losses: PreTrainingLosses, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if losses.training and batch["input_ids"].numel() > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(losses, batch)

    PreTrainingLosses.forward = limited


def _train(
    inputs: Path,
    run_folder: Path,
    changes: Mapping[str, Any],
    before: Callable[[], None] | None,
    environment: Mapping[str, str],
) -> None:
    with output_of(run_folder).open("a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ.update(environment)
    # Its own workers start as they do everywhere: a server of their own would first import everything.
    multiprocessing.set_start_method(None, force=True)
    # What utilisation is a fraction of takes seconds to measure.
    callbacks.peak_rate = lambda *_: 1e11
    if before is not None:
        before()
    run_pretraining(pretraining_inputs.pretrain_job(inputs, run_folder, **changes))


def wait_as_a_data_worker(told: Connection) -> None:
    """Call `ignore_signals_in_worker` when told to, say so, and end when told to."""
    told.send("started")
    told.recv()
    ignore_signals_in_worker(0)
    told.send("ready")
    told.recv()
