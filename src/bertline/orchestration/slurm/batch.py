"""What a job does: `python -m bertline.orchestration.slurm.batch RUN_FOLDER MODULE:FUNCTION`.

It starts the ranks with srun and waits for them. Signals of Slurm (the time limit, a pre-emption) go to the ranks,
which save and stop after a step; this process then puts the job back into the queue. The next start resumes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bertline.foundation.files import append_lines, read_json_lines
from bertline.foundation.progress import say, warn
from bertline.foundation.signals import STOP_SIGNALS
from bertline.orchestration.config import pipeline_config
from bertline.orchestration.ownership import is_locked
from bertline.orchestration.slurm import commands
from bertline.orchestration.slurm.script import srun_command
from bertline.orchestration.stages import stage_named
from bertline.orchestration.status import TO_BE_REQUEUED, Status, read_status, write_status
from bertline.training.config import RuntimeConfig
from bertline.training.environment import environment_for_training
from bertline.training.launchers import SlurmLauncherConfig
from bertline.training.nodes import outside_step

_STARTS = "starts.jsonl"
_REQUEUED_IN_S = 120.0
# A controller that restarts must not cost the rest of the work.
_CONTROLLER_BACK_S = 600.0
_LOOK_S = 5.0


def main(folder: Path, function: str) -> int:
    """Do the work of a run folder in this job; returns the exit status of the job."""
    frozen = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    config = pipeline_config(frozen["config"])
    launcher, job_id = config.runtime.launcher, this_job(os.environ)
    if not isinstance(launcher, SlurmLauncherConfig):
        warn(
            f"{folder} was opened with runtime/launcher={launcher.kind} after job {job_id} was submitted: the job ends"
        )
        return 1
    ranks = stage_named(frozen["stage"]).on_several_devices
    shares_work = not ranks and launcher.sweep_tasks > 1
    signals = _Signals()
    if not shares_work and not _wait_for_earlier(folder, signals, launcher.stop_before_s):
        say("this job has to stop before its work began")
        return _requeued(job_id)
    if read_status(folder).state == "finished":
        say("the work is finished already")
        return 0
    if not _may_start(folder, job_id, launcher.max_requeues):
        if shares_work and (is_locked(folder) or commands.has_other_tasks(job_id)):
            warn(_no_progress(job_id, launcher.max_requeues))
            return 1  # the others continue without this task
        write_status(folder, Status(state="failed", message=_no_progress(job_id, launcher.max_requeues)))
        return 1
    if ranks and (message := _too_small(config.runtime, job_id, os.environ)):
        write_status(folder, Status(state="failed", message=message))
        return 1
    command = srun_command(folder, function, config.runtime, launcher, ranks=ranks)
    signals.run(command, _environment(ranks=ranks, shares_work=shares_work))
    status = read_status(folder)
    match status.state:
        case "finished":
            return 0
        case "failed":
            return 1
        case "stopped":
            say(status.message)
        case _:
            say("this task ended before the sweep did" if shares_work else "the first rank was killed")
    return _requeued(job_id)


def _too_small(runtime: RuntimeConfig, job_id: str, environment: Mapping[str, str]) -> str:
    """Return why this job has no room for the ranks of the configuration, which may be newer; else an empty string."""
    wanted = {"SLURM_JOB_NUM_NODES": runtime.num_nodes, "SLURM_NTASKS_PER_NODE": runtime.num_devices}
    nodes, devices = (int(environment.get(name, number)) for name, number in wanted.items())
    if runtime.num_nodes <= nodes and runtime.num_devices <= devices:
        return ""
    return (
        f"job {job_id} was submitted for {nodes} node(s) of {devices} device(s), and since then the command was given "
        f"with runtime.num_nodes={runtime.num_nodes} and runtime.num_devices={runtime.num_devices}. Run it once more: "
        "it submits a job of that size, which resumes"
    )


def _environment(*, ranks: bool, shares_work: bool) -> dict[str, str]:
    """Return the environment of srun."""
    environment = environment_for_training(outside_step(os.environ))
    if shares_work:
        environment["BERTLINE_JOIN"] = os.environ.get("SLURM_ARRAY_TASK_ID", "0")
    if ranks:
        # The first rank is on this node. Names of nodes need not be names of hosts.
        environment["MASTER_ADDR"] = commands.address_of(os.environ["SLURMD_NODENAME"])
        environment["MASTER_PORT"] = str(_free_port())
    return environment


class _Signals:
    """Receives the signals that ask this job to stop, from its start on: unhandled, they would end it for good."""

    def __init__(self) -> None:
        self.came = False
        self._work: subprocess.Popen[bytes] | None = None
        for number in STOP_SIGNALS:
            signal.signal(number, self._receive)

    def run(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Run the work, unless a signal came already, and wait for its end; signals are passed on to it."""
        if not self.came:
            self._work = subprocess.Popen(command, env=environment)
            self._work.wait()

    def _receive(self, number: int, frame: Any) -> None:
        self.came = True
        if self._work is not None:
            # A signal to this process alone (`scancel --batch`) is for the work. TERM would make srun kill the ranks.
            self._work.send_signal(signal.SIGUSR1)


def _free_port() -> int:
    """Return a port of this node that nobody listens on; one computed from the job's number may be taken."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def _wait_for_earlier(folder: Path, signals: _Signals, stop_before_s: float) -> bool:
    """Wait while another process works here: an earlier start may be alive on a node that Slurm has lost.

    Returns:
        Whether the work may begin; False if this job has to stop. Slurm tells its steps of the time limit, and here is
        none yet.
    """
    told = False
    ends = float(os.environ.get("SLURM_JOB_END_TIME", "inf"))
    while is_locked(folder):
        if signals.came or time.time() > ends - stop_before_s:
            return False
        if not told:
            warn(f"another process works in {folder} still; waiting until it ends or its heartbeat stops")
            told = True
        time.sleep(_LOOK_S)
    return not signals.came


def _may_start(folder: Path, job_id: str, max_requeues: int) -> bool:
    """Note this start; False if the job has made no progress in its last starts."""
    task = os.environ.get("SLURM_ARRAY_TASK_ID")
    this: dict[str, Any] = {"job": job_id, "task": task, "progress": progress_of(folder, task)}
    path = folder / (_STARTS if task is None else f"{task}.{_STARTS}")
    of_job = [start for start in read_json_lines(path) if start["job"] == job_id]
    append_lines(path, [json.dumps({**this, "at": time.time(), "host": os.environ.get("SLURMD_NODENAME")})])
    without_progress = 0
    for start in reversed(of_job):
        if start["progress"] != this["progress"]:
            break
        without_progress += 1
    return without_progress <= max_requeues


def progress_of(folder: Path, task: str | None = None) -> str:
    """Return a mark that changes when work is kept: a checkpoint, or an event of a sweep.

    Args:
        folder: Run folder.
        task: Task of an array: only what it has done itself counts, so that one whose node is broken does not start
            for ever while the others make progress.
    """
    if task is not None:
        done = folder / f"{task}.done"
        return str(done.stat().st_size if done.exists() else 0)
    checkpoints = sorted(path.stem for path in (folder / "checkpoints").glob("step-*.pt"))
    events = folder / "events.jsonl"
    repetitions = sum(1 for _ in (folder / "seeds").glob("*/outcome.json"))
    size = events.stat().st_size if events.exists() else 0
    return f"{checkpoints[-1] if checkpoints else ''}/{size}/{repetitions}"


def _no_progress(job_id: str, max_requeues: int) -> str:
    return (
        f"job {job_id} was started {max_requeues + 1} times without progress (runtime.launcher.max_requeues="
        f"{max_requeues}): no checkpoint and no result was kept in between. Give it more time (runtime.launcher.time), "
        "save more often (runtime.checkpoint_every_s), or see in the log why it ended"
    )


def this_job(environment: Mapping[str, str]) -> str:
    """Return the number by which Slurm knows this job, or this task of an array alone.

    One task of an array has the array's own number as its SLURM_JOB_ID, which stands for all tasks.

    >>> this_job({"SLURM_JOB_ID": "7"})
    '7'
    >>> this_job({"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"})
    '7_1'
    """
    if "SLURM_ARRAY_TASK_ID" in environment:
        return f"{environment['SLURM_ARRAY_JOB_ID']}_{environment['SLURM_ARRAY_TASK_ID']}"
    return environment["SLURM_JOB_ID"]


def _requeued(job_id: str) -> int:
    """Put the job back into the queue, which ends this process; returns the exit status where it is not put back."""
    until = time.monotonic() + _CONTROLLER_BACK_S
    while True:
        try:
            state = commands.state_of(job_id)
            if state not in ("RUNNING", "SUSPENDED"):  # cancelled by a person, or requeued by Slurm itself
                say(f"job {job_id} stops here ({state or 'unknown state'})")
                return TO_BE_REQUEUED
            refused = commands.requeue(job_id)
            break
        except commands.UnansweredError as error:
            if time.monotonic() > until:
                refused = str(error)
                break
            time.sleep(_LOOK_S)
    if refused:
        warn(f"Slurm did not put job {job_id} back into the queue ({refused}); submit it again to resume")
        return TO_BE_REQUEUED
    say(f"job {job_id} is put back into the queue; its next start resumes")
    time.sleep(_REQUEUED_IN_S)  # Slurm ends the job meanwhile
    return TO_BE_REQUEUED


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
