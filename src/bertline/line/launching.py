"""Start, or attach to, the worker of a run folder.

The worker is a process of its own: it outlives its recipe, so a lost terminal or a killed `dvc` loses nothing, and a
second `dvc repro` attaches instead of starting twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertline.foundation.errors import BertlineError
from bertline.foundation.progress import say
from bertline.line.log_view import LogView
from bertline.line.status import ALREADY_RUNNING, is_locked, read_status
from bertline.training.config import RuntimeConfig
from bertline.training.environment import environment_for_training

_POLL_S = 0.2


def run_in_worker(folder: Path, runtime: RuntimeConfig, *, several_devices: bool) -> dict[str, float]:
    """Bring the work of a run folder to its end and return its headline figures.

    Args:
        folder: A run folder with a frozen `config.yaml`.
        runtime: Says how many devices to start ranks for.
        several_devices: Whether this work can use more than one device.

    Raises:
        BertlineError: The worker failed or was stopped; the message says why and how to go on.
    """
    status = read_status(folder)
    if status.state == "finished":
        say(f"{folder} is finished already; taking its result")
        return status.metrics
    if is_locked(folder) or _start(folder, _command(folder, runtime, several_devices)) == ALREADY_RUNNING:
        _attach(folder)
    status = read_status(folder)
    match status.state:
        case "finished":
            return status.metrics
        case "running":
            raise BertlineError(f"the worker at {folder} was killed; run the same command again to go on where it was")
        case "stopped":
            raise BertlineError(f"{status.message}; run the same command again to go on where it was")
        case _:
            raise BertlineError(f"{status.message}\n(log: {folder / 'log'})")


def _command(folder: Path, runtime: RuntimeConfig, several_devices: bool) -> list[str]:
    module = ["-m", "bertline.line.worker", str(folder)]
    if not several_devices or runtime.num_devices * runtime.num_nodes == 1:
        return [sys.executable, *module]
    # Lightning's own launcher would run the recipe's command line again on every rank; torchrun starts only workers.
    nodes = ["--standalone"] if runtime.num_nodes == 1 else [f"--nnodes={runtime.num_nodes}"]
    return [sys.executable, "-m", "torch.distributed.run", *nodes, f"--nproc-per-node={runtime.num_devices}", *module]


def _start(folder: Path, command: list[str]) -> int:
    log = folder / "log"
    with log.open("a", encoding="utf-8") as handle, LogView(log) as view:
        # A session of its own: closing the terminal does not end the worker, and Ctrl-C reaches it once, through us.
        environment = environment_for_training(os.environ)
        process = subprocess.Popen(command, stdout=handle, stderr=handle, env=environment, start_new_session=True)
        with _signals_passed_on(process):
            while process.poll() is None:
                view.show()
                time.sleep(_POLL_S)
    return process.returncode


def _attach(folder: Path) -> None:
    pid = read_status(folder).pid
    say(f"attached to the worker that is at {folder} already (process {pid}); Ctrl-C leaves it running")
    with LogView(folder / "log") as view:
        while is_locked(folder):
            view.show()
            time.sleep(_POLL_S)


@contextmanager
def _signals_passed_on(process: subprocess.Popen[Any]) -> Iterator[None]:
    """TERM and Ctrl-C reach the worker, which stops at its next safe point; the recipe waits for it."""

    def terminate(signum: int, frame: Any) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, terminate) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
