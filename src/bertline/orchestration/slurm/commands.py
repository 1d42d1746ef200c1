"""Slurm's commands: sbatch, squeue, scontrol and, where there is accounting, sacct."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertline.foundation.errors import MachineError

_COMMANDS = ("sbatch", "squeue", "scontrol")
_ANSWERS_IN_S = 60
# A submission whose answer was lost may have been accepted.
_LOST_ANSWER_S = 60.0
# Slurm's whole words: a cluster's own refusals ask to "contact" somebody, and name accounts and folders.
_UNREACHED = "unable to contact slurm controller"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A job in the queue."""

    job_id: str
    """Number of the job; of an array, its own, not that of a task."""
    state: str
    """Such as PENDING or RUNNING; of an array, that of the task that is furthest."""
    reason: str
    """Why it waits, in Slurm's word; `None` while it runs."""


def require_commands() -> None:
    """Check that this machine has Slurm's commands.

    Raises:
        MachineError: It lacks some.
    """
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        raise MachineError(
            f"runtime.launcher is slurm, but this machine has no {', '.join(missing)}. Run the command on a login node "
            "of the cluster, or start the work here with runtime/launcher=local."
        )


def submit(script: Path, flags: Sequence[str], name: str, *, held: int) -> str:
    """Submit a job script and return the number of the job.

    Args:
        script: Job script.
        flags: Flags for the command line, which come before those of the script and of the environment.
        name: Name of the job that the flags give, by which it is found if the answer is lost.
        held: Descriptor of the lock that sbatch holds, too: a killed caller leaves the lock to it.

    Raises:
        MachineError: Slurm refused the job; the message has its words.
    """
    process = subprocess.Popen(
        ["sbatch", "--parsable", *flags, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=(held,),
        start_new_session=True,  # a Ctrl-C would end it in the middle of its request
    )
    try:
        out, error = process.communicate()
    except KeyboardInterrupt:
        process.communicate()  # the next caller finds the job by its name
        raise
    found = re.match(r"(\d+)", out)
    if process.returncode == 0 and found:
        return found[1]
    said = _words(error or out)
    if "timed out" in error.lower() or _UNREACHED in error.lower():
        if job := _found_later(name):
            return job.job_id
        said += ". It may have taken it nevertheless: run the same command again, which looks for the job first"
    raise MachineError(
        f"Slurm did not take the job: {said or 'sbatch said nothing'}. The job script is {script}; its flags come from "
        "runtime.launcher (account, partition, time, memory, flags) and the numbers of devices and nodes."
    )


def _found_later(name: str) -> Job | None:
    """Return the job of a name that the controller shows within a minute."""
    until = time.monotonic() + _LOST_ANSWER_S
    while time.monotonic() < until:
        try:
            if job := job_named(name):
                return job
        except UnansweredError:
            pass
        time.sleep(2)
    return None


def job_named(name: str) -> Job | None:
    """Return the job in the queue that has a name; None if there is none.

    Raises:
        UnansweredError: The controller does not answer.
    """
    answer = _run("squeue", "--noheader", f"--name={name}", "--format=%F|%T|%r")
    if answer.returncode != 0:
        raise UnansweredError(_words(answer.stderr or answer.stdout))
    rows = [line.strip().split("|") for line in answer.stdout.splitlines() if line.count("|") == 2]
    if not rows:
        return None
    # Those that run stand first.
    job_id, state, reason = min(rows, key=lambda row: (row[1] == "PENDING", -int(row[0])))
    return Job(job_id=job_id, state=state, reason=reason)


def end_of(job_id: str) -> str:
    """Return how a job ended, in Slurm's words, such as `CANCELLED`; empty if Slurm has forgotten it."""
    answer = _run("scontrol", "--oneliner", "show", "job", job_id)
    state = re.search(r"JobState=(\S+)(?: Reason=(\S+))?", answer.stdout)
    if answer.returncode == 0 and state:
        return state[1] if state[2] in (None, "None") else f"{state[1]}, {state[2]}"
    if shutil.which("sacct") is None:
        return ""
    answer = _run("sacct", "--jobs", job_id, "--allocations", "--noheader", "--parsable2", "--format=State")
    return answer.stdout.strip().partition("\n")[0] if answer.returncode == 0 else ""


def state_of(job_id: str) -> str:
    """Return the state of a job that the controller still knows, such as `RUNNING`; empty otherwise.

    Raises:
        UnansweredError: The controller does not answer.
    """
    answer = _run("scontrol", "--oneliner", "show", "job", job_id)
    if answer.returncode != 0 and "invalid job id" not in answer.stderr.lower():
        raise UnansweredError(_words(answer.stderr or answer.stdout))
    state = re.search(r"JobState=(\S+)", answer.stdout)
    return state[1] if state else ""


def has_other_tasks(job_id: str) -> bool:
    """Return whether other tasks of an array are in the queue; True where Slurm does not answer.

    Args:
        job_id: A task, as `7_1`.
    """
    answer = _run("squeue", "--noheader", "--array", f"--jobs={job_id.partition('_')[0]}", "--format=%F_%K|%T")
    if answer.returncode != 0:
        return True
    rows = [line.strip().split("|") for line in answer.stdout.splitlines()]
    return any(task != job_id and state != "COMPLETING" for task, state in rows)


def requeue(job_id: str) -> str:
    """Put this running job back into the queue; returns why Slurm refused, or nothing.

    Raises:
        UnansweredError: The controller does not answer.
    """
    answer = _run("scontrol", "requeue", job_id)
    if answer.returncode == 0:
        return ""
    said = _words(answer.stderr or answer.stdout) or "scontrol failed"
    if _UNREACHED in said.lower() or "timed out" in said.lower():
        raise UnansweredError(said)
    return said


def address_of(node: str) -> str:
    """Return the address by which the other nodes reach a node; its name if Slurm does not say."""
    answer = _run("scontrol", "--oneliner", "show", "node", node)
    found = re.search(r"NodeAddr=(\S+)", answer.stdout)
    return found[1] if answer.returncode == 0 and found else node


def nodes_down() -> str:
    """Return the nodes that take no job, with their states, such as `node2: down*`; empty if Slurm names none."""
    answer = _run("sinfo", "--noheader", "--states=down,drained,fail", "--format=%N: %T")
    # A node stands in a line of each of its partitions.
    return (
        ", ".join(dict.fromkeys(line.strip() for line in answer.stdout.splitlines())) if not answer.returncode else ""
    )


class UnansweredError(Exception):
    """The controller of Slurm does not answer; jobs run on without it."""


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ANSWERS_IN_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, stdout="", stderr=f"{command[0]}: {error}")


def _words(text: str) -> str:
    """Return what a command of Slurm said, in one line and without its own name."""
    return "; ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in text.strip().splitlines())
