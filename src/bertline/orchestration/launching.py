"""Start, or attach to, the worker of a run folder: a process of this machine, or a job (`orchestration.slurm`).

The worker is a process of its own: it outlives its recipe, so a lost terminal or a killed `dvc` loses nothing, and a
second `dvc repro` attaches instead of starting a second worker.

On several nodes the same command runs on each. The first rank, on the first node, holds the lock and writes the status;
the other nodes start their ranks, and then report that status.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from bertline.foundation.errors import BertlineError
from bertline.foundation.progress import say, warn
from bertline.foundation.signals import STOP_SIGNALS
from bertline.orchestration.log_view import LogView
from bertline.orchestration.ownership import is_locked
from bertline.orchestration.slurm.client import run_job
from bertline.orchestration.status import Status, problem_with_result, read_status, time_of_status
from bertline.orchestration.stopping import COULD_NOT_WRITE, WORK_STOPPED, Detached, Stopped, listening, named
from bertline.training.config import RuntimeConfig
from bertline.training.environment import environment_for_training
from bertline.training.launchers import SlurmLauncherConfig
from bertline.training.nodes import Node, outside_step, this_node

_POLL_S = 0.2
# On a file system that machines share, a new file may become visible only some time after it was written.
_FILE_SYSTEM_LAG_S = 15.0


def run_in_worker(folder: Path, function: str, runtime: RuntimeConfig, *, several_devices: bool) -> dict[str, float]:
    """Finish the work of a run folder and return its headline figures.

    Args:
        folder: A run folder with a frozen `config.yaml`.
        function: Import path of the function that does the work, such as `bertline.pretraining.run:run`.
        runtime: Determines how many devices to start ranks for.
        several_devices: Whether this work can use more than one device.

    Raises:
        BertlineError: The worker failed, or others stopped it; the message states why and how to resume.
        Stopped: A signal to this process stopped the worker, or the watching of a worker that continues.
        MachineError: Several nodes are configured, and this one does not know its rank among them.
    """
    status = read_status(folder)
    if status.state == "finished":
        problem = problem_with_result(folder, status)
        if problem is None:
            say(f"{folder} is finished already; taking its result")
            return status.metrics
        warn(
            f"{folder} says it is finished, but {problem}: the work is done again, from its checkpoints where they are"
        )
    passed_on: list[int] = []
    if isinstance(runtime.launcher, SlurmLauncherConfig):
        run_job(folder, function, runtime, runtime.launcher, ranks=several_devices)
        status = read_status(folder)
    else:
        status = _run_here(folder, function, runtime, several_devices, passed_on)
    match status.state:
        case "finished":
            return status.metrics
        case "stopped" | "running" if passed_on:
            how = "" if status.message.startswith(WORK_STOPPED) or not status.message else f": {status.message}"
            raise Stopped(f"by {named(passed_on[0])}{how}; run the same command again to resume", passed_on[0])
        case "running":
            raise BertlineError(f"the worker at {folder} was killed; run the same command again to resume")
        case "stopped":
            raise BertlineError(f"{status.message}; run the same command again to resume")
        case _:
            why = status.message or "the worker ended before it wrote a status"
            raise BertlineError(f"{why}\n(log: {folder / 'log'})")


def _run_here(
    folder: Path, function: str, runtime: RuntimeConfig, several_devices: bool, passed_on: list[int]
) -> Status:
    """Start, or attach to, the worker on this machine; returns the status that it left."""
    node = this_node(runtime.num_nodes if several_devices else 1, os.environ)
    command = _command(folder, function, runtime, several_devices, node)
    if not node.is_first:
        return _join(folder, command, node, passed_on)
    # torchrun has one exit status for all failures, so the lock is what tells whether another worker is running.
    exit_status = None if is_locked(folder) else _start(folder, command, passed_on)
    if exit_status == COULD_NOT_WRITE:
        raise BertlineError(
            f"the worker at {folder} ended and could not write how; its last words are above. Free space there, "
            "then run the same command again to resume"
        )
    if exit_status != 0 and is_locked(folder):
        _attach(folder)
    return read_status(folder)


def _command(folder: Path, function: str, runtime: RuntimeConfig, several_devices: bool, node: Node) -> list[str]:
    module = ["-m", "bertline.orchestration.worker", str(folder), function]
    if not several_devices or runtime.num_devices * runtime.num_nodes == 1:
        return [sys.executable, *module]
    # Lightning's own launcher would run the recipe's command line again on every rank; torchrun starts only workers.
    nodes = ["--standalone"]
    if node.num_nodes > 1:
        nodes = [
            f"--nnodes={node.num_nodes}",
            f"--node-rank={node.rank}",
            "--rdzv-backend=static",
            f"--rdzv-endpoint={node.address}:{node.port}",
            # Nodes whose configuration, inputs or code differ have other folder names, so they never train together.
            f"--rdzv-id={folder.name}",
        ]
    return [
        sys.executable,
        "-m",
        "bertline.orchestration.torchrun",
        *nodes,
        f"--nproc-per-node={runtime.num_devices}",
        *module,
    ]


def _join(folder: Path, command: list[str], node: Node, passed_on: list[int]) -> Status:
    """Start the ranks of a node other than the first, and return the first node's status when they have ended."""
    # The lock is not tried: the first rank may hold it already, and trying at the wrong moment would block that rank.
    log = folder / f"log.node{node.rank}"
    say(
        f"node {node.rank} of {node.num_nodes} works on {folder} with the others, which it meets at "
        f"{node.address}:{node.port} (log: {log})"
    )
    begun = time_of_status(folder)
    exit_status = _start(folder, command, passed_on, log)
    patience = time.monotonic() + _FILE_SYSTEM_LAG_S
    while time_of_status(folder) == begun or read_status(folder).state == "running":
        if time.monotonic() > patience:
            raise BertlineError(
                f"the processes of node {node.rank} ended with exit status {exit_status}, and the first node has not "
                f"said how the run ended. See {log} and {folder / 'log'}. Where nodes did not meet: all of them must "
                f"be started, with the same files, code and configuration, and reach port {node.port} of "
                f"{node.address}. Then run the same command again on every node"
            )
        time.sleep(_POLL_S)
    return read_status(folder)


def _start(folder: Path, command: list[str], passed_on: list[int], log: Path | None = None) -> int:
    """Run a worker to its end; returns its exit status, and adds the signals that it was sent to `passed_on`."""
    log = log or folder / "log"
    with log.open("a", encoding="utf-8") as handle, closing(LogView(log)) as view, listening() as listener:
        # A session of its own: closing the terminal does not end the worker, and Ctrl-C reaches it once, through us.
        environment = environment_for_training(outside_step(os.environ))
        process = subprocess.Popen(
            command,
            stdout=handle,
            stderr=handle,
            env=listener.environment(environment),
            pass_fds=(listener.write,),
            start_new_session=True,
        )
        with _signals_passed_on(process, passed_on):
            while process.poll() is None:
                view.show()
                time.sleep(_POLL_S)
        if last_words := listener.heard():
            print(f"worker: {last_words}", file=sys.stderr, flush=True)
    return process.returncode


def _attach(folder: Path) -> None:
    pid = read_status(folder).pid
    try:
        say(f"attached to the worker that is at {folder} already (process {pid}); Ctrl-C leaves it running")
        with closing(LogView(folder / "log")) as view:
            while is_locked(folder):
                view.show()
                time.sleep(_POLL_S)
    except KeyboardInterrupt as error:
        number = error.number if isinstance(error, Stopped) else signal.SIGINT
        raise Detached(
            f"by {named(number)}; training continues in process {pid} at {folder}. Run the same command again to see "
            f"it, or `kill {pid}` to stop it",
            number,
        ) from None


@contextmanager
def _signals_passed_on(process: subprocess.Popen[Any], passed_on: list[int]) -> Iterator[None]:
    """Forward requests to stop to the worker, which stops at its next safe point; the recipe waits for it."""

    def forward(signum: int, frame: Any) -> None:
        if process.poll() is None:
            passed_on.append(signum)
            process.send_signal(signum)

    before = {number: signal.signal(number, forward) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
