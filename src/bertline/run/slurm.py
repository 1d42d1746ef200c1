"""Slurm: the job of a run folder, from its submission to the next start after a pre-emption.

The command on a login node submits a job, or attaches to the one of that name, and follows its log. The job script
calls `python -m bertline.run.slurm RUN_FOLDER`, which starts the ranks with srun, passes
signals of Slurm (the time limit, a pre-emption) on to them, and puts a job that was stopped back into the queue; its
next start resumes. How the work ended stands in the run folder's status, since a cluster without accounting forgets a
job minutes after its end.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from bertline.foundation.errors import BertlineError, ConfigError, MachineError
from bertline.foundation.files import append_lines, read_json_lines, write_atomically
from bertline.foundation.progress import say, warn
from bertline.foundation.signals import RECEIVED, STOP_SIGNALS
from bertline.run.folder import Status, finished_status, is_locked, read_frozen, read_status, write_status
from bertline.run.ranks import FILE_SYSTEM_LAG_S, JOINS, TO_BE_REQUEUED
from bertline.run.stopping import Stopped, named
from bertline.stages.registry import stage_named
from bertline.training.config import RuntimeConfig, SlurmLauncherConfig
from bertline.training.environment import environment_for_training, outside_step

T = TypeVar("T")
_STARTS = "starts.jsonl"
_ANSWERS_IN_S = 60
_ASK_QUEUE_S = 3.0
_LOOK_S = 0.5
# A controller that restarts must not cost the rest of the work.
_CONTROLLER_BACK_S = 600.0
_REQUEUED_IN_S = 120.0
_RANKS_END_S = 30.0


class UnansweredError(Exception):
    """The controller of Slurm does not answer; jobs run on without it."""


def run_job(folder: Path, runtime: RuntimeConfig, *, ranks: bool, freeze: Callable[[], None]) -> Status:
    """Submit the job of a run folder, or attach to it, and return the status when the work has ended.

    Args:
        ranks: Whether the work has a rank for each device (pretraining), else it may be a job array (a sweep).
        freeze: Writes the run folder's configuration; called if a job is submitted.
    """
    if (done := finished_status(folder)) is not None:
        return done
    if missing := [name for name in ("sbatch", "squeue", "scontrol") if shutil.which(name) is None]:
        raise MachineError(
            f"runtime.launcher is slurm, but this machine has no {', '.join(missing)}. Run the command on a login node "
            "of the cluster, or start the work here with runtime/launcher=local."
        )
    place = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:6]  # the same run may be in two folders
    name, job_id = f"bertline-{folder.parent.name}-{folder.name}-{place}", None
    try:
        job_id = _attached(folder, name) or _submitted(folder, runtime, name, ranks=ranks, freeze=freeze)
        return _followed(folder, name, job_id)
    except KeyboardInterrupt:
        number = RECEIVED.first or signal.SIGINT
        which = f"job {job_id}" if job_id else "what was submitted"
        raise Stopped(
            f"by {named(number)}; {which} continues without this command. Run the same command again to see it, or "
            f"`scancel --name={name}` to end it",
            number,
        ) from None


def _attached(folder: Path, name: str) -> str | None:
    """Return the job of a name that waits or runs; None if there is none, or it is ending."""
    while True:
        job = _patiently(lambda: job_named(name))
        if job is None:
            return None
        if job.state != "COMPLETING" and read_status(folder).state != "failed":
            say(f"attached to job {job.job_id} ({job.state.lower()}); Ctrl-C leaves it running (log: {folder}/log*)")
            return job.job_id
        time.sleep(_ASK_QUEUE_S)  # a failed job that has just been reported


def _submitted(folder: Path, runtime: RuntimeConfig, name: str, *, ranks: bool, freeze: Callable[[], None]) -> str:
    """Submit the job; return its number. Of two jobs of a name, the second starts later and finds the result."""
    freeze()
    write_status(folder, Status(state="new"))
    script = folder / "job.sh"
    write_atomically(script, job_script(folder, runtime, name=name, ranks=ranks))
    # On the command line it comes before what SBATCH_JOB_NAME says.
    answer = _run("sbatch", "--parsable", f"--job-name={name}", str(script))
    number = re.match(r"(\d+)", answer.stdout)
    if answer.returncode != 0 or number is None:
        raise MachineError(
            f"Slurm did not take the job: {_words(answer)}. The job script is {script}; its flags come from "
            "runtime.launcher (account, partition, time, memory, flags) and the numbers of devices and nodes. If only "
            "the answer was lost, the same command finds the job by its name"
        )
    say(f"submitted job {number[1]}; Ctrl-C leaves it running (log: {folder}/log*)")
    return number[1]


def _followed(folder: Path, name: str, job_id: str) -> Status:
    """Show the job's log until its status is final, or no job of this name is in the queue."""
    next_look, gone_since, told = 0.0, None, ""
    is_old = end_of(job_id).startswith("RUNNING")
    shown = {log: log.stat().st_size for log in _logs(folder)} if is_old else {}
    while True:
        status = read_status(folder)
        for log in _logs(folder):
            shown[log] = _show(log, shown.get(log, 0))
        if status.state in ("finished", "failed"):
            return status
        now = time.monotonic()
        if now >= next_look:
            next_look = now + _ASK_QUEUE_S
            job = _patiently(lambda: job_named(name))
            if job is not None:
                waits = f"job {job.job_id} waits: {job.reason} (`scontrol show job {job.job_id}` says more)"
                if job.state == "PENDING" and job.reason != "None" and waits != told:
                    say(waits)
                    told = waits
                gone_since = None
            elif not is_locked(folder):
                gone_since = gone_since or now
                if now - gone_since >= FILE_SYSTEM_LAG_S:
                    break
        time.sleep(_LOOK_S)
    raise BertlineError(
        f"job {job_id} ended before its work was done ({end_of(job_id) or 'Slurm has forgotten how'}). Its last words:"
        f"\n{_last_lines(folder)}Run the same command again: the work is submitted again and resumes"
    )


def _logs(folder: Path) -> list[Path]:
    """Return the log of the job; each task of an array has one of its own."""
    return sorted(folder.glob("log*"))


def _show(log: Path, shown: int) -> int:
    """Print the lines of a log from a position on; return the position after the last whole line."""
    with log.open("rb") as handle:
        handle.seek(shown)
        whole, newline, _ = handle.read().rpartition(b"\n")
    if newline:
        say(whole.decode("utf-8", errors="replace"))
    return shown + len(whole) + len(newline)


def _last_lines(folder: Path) -> str:
    """Return the end of the newest log."""
    logs = sorted(_logs(folder), key=lambda path: path.stat().st_mtime)
    lines = logs[-1].read_text(encoding="utf-8", errors="replace").splitlines()[-20:] if logs else []
    return "".join(f"  | {line}\n" for line in lines)


def job_script(folder: Path, runtime: RuntimeConfig, *, name: str, ranks: bool) -> str:
    """Return the job script of a run folder; for its arguments see `run_job`."""
    launcher = cast("SlurmLauncherConfig", runtime.launcher)
    place, log = Path.cwd(), (folder / "log").resolve()
    for path in (place, log):
        if "%" in str(path) or "\\" in str(path) or "\n" in str(path):
            raise ConfigError(f"{path} has a %, a backslash or a line end, which sbatch would replace. Rename it.")
    is_array = not ranks and launcher.sweep_tasks > 1
    cores = _cores(runtime, launcher, ranks=ranks)
    options: dict[str, str | int | None] = {
        "job-name": name,
        "chdir": str(place),
        "output": f"{log}.task%a" if is_array else str(log),
        "open-mode": "append",
        "signal": f"USR1@{launcher.stop_before_s}",
        "array": f"0-{launcher.sweep_tasks - 1}" if is_array else None,
        "dependency": None if is_array else "singleton",
        "nodes": runtime.num_nodes if ranks else 1,
        "ntasks-per-node": runtime.num_devices if ranks else 1,
        "account": launcher.account,
        "partition": launcher.partition,
        "time": launcher.time,
        "mem": launcher.memory,
        "cpus-per-task": cores,
        "gpus-per-node": runtime.num_devices if launcher.gpus else None,
    }
    lines = [f"--{key}={shlex.quote(str(value))}" for key, value in options.items() if value is not None]
    python = shlex.quote(launcher.python or sys.executable)
    flags = [f"#SBATCH {flag}" for flag in [*lines, "--requeue", *launcher.flags]]
    work = f"exec {python} -m bertline.run.slurm {shlex.quote(str(folder))}"
    return "\n".join(["#!/bin/bash", *flags, "", *launcher.setup, work, ""])


def srun_command(folder: Path, runtime: RuntimeConfig, *, ranks: bool) -> list[str]:
    """Return the command that starts the ranks of a job, one for each device, or the one process of a sweep.

    A rank that fails does not end the others: they notice it within `runtime.peer_timeout_s`, and the first one still
    writes why. None is ended because another has ended: the first one writes the result when the others are done.
    """
    launcher = cast("SlurmLauncherConfig", runtime.launcher)
    nodes, tasks = (runtime.num_nodes, runtime.num_devices) if ranks else (1, 1)
    cores = _cores(runtime, launcher, ranks=ranks)
    flags = [f"--nodes={nodes}", f"--ntasks-per-node={tasks}", "--kill-on-bad-exit=0", "--wait=0"]
    flags += [] if cores is None else [f"--cpus-per-task={cores}"]  # srun does not take it over from sbatch
    python = [*shlex.split(launcher.container or ""), launcher.python or sys.executable]
    return ["srun", *flags, *launcher.srun_flags, *python, "-m", "bertline.run.ranks", str(folder)]


def _cores(runtime: RuntimeConfig, launcher: SlurmLauncherConfig, *, ranks: bool) -> int | None:
    """Return the cores of a task: a sweep is one task, whose processes share the devices of a node."""
    of_device = launcher.cpus_per_task
    return of_device if of_device is None or ranks else of_device * runtime.num_devices


def main(folder: Path) -> int:
    """Do the work of a run folder in this job; returns the exit status of the job."""
    signals = _Signals()
    frozen, config = read_frozen(folder)
    runtime, job_id = config.runtime, this_job(os.environ)
    launcher, ranks = cast("SlurmLauncherConfig", runtime.launcher), stage_named(frozen["stage"]).on_several_devices
    is_array = not ranks and launcher.sweep_tasks > 1
    if read_status(folder).state == "finished":
        say("the work is finished already")
        return 0
    if not _may_start(folder, job_id, launcher.max_requeues):
        message = (
            f"job {job_id} was started {launcher.max_requeues + 1} times without progress (runtime.launcher."
            f"max_requeues={launcher.max_requeues}): nothing was saved in between. Give it more time "
            "(runtime.launcher.time), save more often (runtime.checkpoint_every_s), or see in the log why it ended"
        )
        warn(message)
        if not is_array:  # the other tasks continue without this one
            write_status(folder, Status(state="failed", message=message))
        return 1
    environment = environment_for_training(outside_step(os.environ))
    if is_array:
        environment[JOINS] = os.environ["SLURM_ARRAY_TASK_ID"]
    if ranks:  # the first rank is on this node; names of nodes need not be names of hosts
        environment["MASTER_ADDR"] = address_of(os.environ["SLURMD_NODENAME"])
        with socket.socket() as listener:  # a port computed from the job's number may be taken
            listener.bind(("", 0))
            environment["MASTER_PORT"] = str(listener.getsockname()[1])
    command = srun_command(folder, runtime, ranks=ranks)
    exit_status = signals.run(command, environment, folder=folder if ranks else None)
    status = read_status(folder)
    if status.state in ("finished", "failed"):
        return 0 if status.state == "finished" else 1
    if is_array and exit_status not in (TO_BE_REQUEUED, 128 + signal.SIGKILL):
        return 1  # an error of this machine
    say(status.message or "the work was killed")
    _requeue(job_id)
    return TO_BE_REQUEUED


class _Signals:
    """Receives the signals that ask this job to stop, from its start on: unhandled, they would end it for good."""

    def __init__(self) -> None:
        self.came = False
        self._work: subprocess.Popen[bytes] | None = None
        for number in STOP_SIGNALS:
            signal.signal(number, self._receive)

    def run(self, command: Sequence[str], environment: Mapping[str, str], *, folder: Path | None) -> int:
        """Run the work, unless a signal came already, and return its exit status; signals are passed on to it.

        srun waits for ever for a rank whose end was lost with a node's link; the first rank's status ends that wait.
        """
        if self.came:
            return TO_BE_REQUEUED
        begun_s = time.time()
        self._work = subprocess.Popen(command, env=environment)
        while True:
            with suppress(subprocess.TimeoutExpired):
                return self._work.wait(_ASK_QUEUE_S)
            ended_s = None if folder is None else read_status(folder).ended_s
            if ended_s is not None and begun_s < ended_s < time.time() - _RANKS_END_S:
                self._work.kill()

    def _receive(self, number: int, frame: Any) -> None:
        self.came = True
        if self._work is not None:
            # A signal to this process alone (`scancel --batch`) is for the work. TERM would make
            # srun kill the ranks.
            self._work.send_signal(signal.SIGUSR1)


def _may_start(folder: Path, job_id: str, max_requeues: int) -> bool:
    """Note this start; False if nothing was saved in the last starts of this job, or task."""
    task = job_id.partition("_")[2]
    path = folder / (f"{task}.{_STARTS}" if task else _STARTS)
    checkpoints = sorted(file.stem for file in (folder / "checkpoints").glob("step-*.pt"))
    done = folder / (f"{task}.done" if task else "events.jsonl")  # of a task, what it has done itself
    progress = f"{checkpoints[-1] if checkpoints else ''}/{done.stat().st_size if done.exists() else 0}"
    starts = [start["progress"] for start in read_json_lines(path) if start["job"] == job_id]
    append_lines(path, [json.dumps({"job": job_id, "progress": progress})])
    without_progress = takewhile(progress.__eq__, reversed(starts))
    return len(list(without_progress)) <= max_requeues


def this_job(environment: Mapping[str, str]) -> str:
    """Return the number by which Slurm knows this job, or this task of an array alone: the SLURM_JOB_ID of one task is
    the array's own number, which stands for all.

    >>> this_job({"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"})
    '7_1'
    """
    if "SLURM_ARRAY_TASK_ID" in environment:
        return f"{environment['SLURM_ARRAY_JOB_ID']}_{environment['SLURM_ARRAY_TASK_ID']}"
    return environment["SLURM_JOB_ID"]


def _requeue(job_id: str) -> None:
    """Put the job back into the queue, which ends this process; returns where it is not put back."""
    state = end_of(job_id).partition(",")[0]
    if state not in ("RUNNING", "SUSPENDED", ""):  # cancelled by a person, or requeued by Slurm
        say(f"job {job_id} stops here ({state})")
        return
    answer = _patiently(lambda: _answered("scontrol", "requeue", job_id), for_s=_CONTROLLER_BACK_S)
    if answer is not None and answer.returncode == 0:
        say(f"job {job_id} is put back into the queue; its next start resumes")
        time.sleep(_REQUEUED_IN_S)  # Slurm ends the job meanwhile
    else:
        why = "no answer" if answer is None else _words(answer)
        warn(f"Slurm did not put job {job_id} back into the queue ({why}); submit it again to resume")


class Job(NamedTuple):
    """A job in the queue."""

    job_id: str
    """Number of the job; of an array, its own, not that of a task."""
    state: str
    """Such as PENDING or RUNNING; of an array, that of the task that is furthest."""
    reason: str
    """Why it waits, in Slurm's word; `None` while it runs."""


def job_named(name: str) -> Job | None:
    """Return the job in the queue that has a name; None if there is none."""
    answer = _answered("squeue", "--noheader", f"--name={name}", "--format=%F|%T|%r")
    rows = [line.strip().split("|") for line in answer.stdout.splitlines() if line.count("|") == 2]
    if not rows:
        return None
    # Those that run stand first.
    job_id, state, reason = min(rows, key=lambda row: (row[1] == "PENDING", -int(row[0])))
    return Job(job_id, state, reason)


def end_of(job_id: str) -> str:
    """Return how a job runs or ended, in Slurm's words, such as `CANCELLED`; empty if Slurm has forgotten it."""
    answer = _run("scontrol", "--oneliner", "show", "job", job_id)
    state = re.search(r"JobState=(\S+)(?: Reason=(\S+))?", answer.stdout)
    if answer.returncode != 0 or not state:
        return ""
    return state[1] if state[2] in (None, "None") else f"{state[1]}, {state[2]}"


def address_of(node: str) -> str:
    """Return the address by which the other nodes reach a node; its name if Slurm does not say."""
    answer = _run("scontrol", "--oneliner", "show", "node", node)
    address = re.search(r"NodeAddr=(\S+)", answer.stdout)
    return address[1] if answer.returncode == 0 and address else node


def _patiently(ask: Callable[[], T], *, for_s: float = float("inf")) -> T | None:
    """Return an answer of the controller, after waiting for it; None if it does not come in time."""
    until, told = time.monotonic() + for_s, False
    while True:
        try:
            return ask()
        except UnansweredError as error:
            if time.monotonic() > until:
                return None
            if not told:
                warn(f"Slurm's controller does not answer ({error}); waiting for it")
                told = True
            time.sleep(_ASK_QUEUE_S)


def _answered(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm; a refusal is an answer, too."""
    answer = _run(*command)
    unreached = ("unable to contact slurm controller", "timed out", "connect failure")
    if answer.returncode != 0 and (command[0] == "squeue" or any(word in answer.stderr.lower() for word in unreached)):
        raise UnansweredError(_words(answer))
    return answer


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_ANSWERS_IN_S, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, stdout="", stderr=f"{command[0]}: {error}")


def _words(answer: subprocess.CompletedProcess[str]) -> str:
    """Return what a command of Slurm said, in one line and without its own name."""
    lines = (answer.stderr or answer.stdout).strip().splitlines()
    return "; ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in lines) or "it said nothing"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
