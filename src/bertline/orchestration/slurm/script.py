"""The job script: what sbatch is asked for, and the command of the ranks."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from bertline.foundation.errors import ConfigError
from bertline.training.config import RuntimeConfig
from bertline.training.launchers import SlurmLauncherConfig

SCRIPT_NAME = "job.sh"
WORKER = "bertline.orchestration.worker"


def job_script(
    folder: Path, function: str, runtime: RuntimeConfig, launcher: SlurmLauncherConfig, *, name: str, ranks: bool
) -> str:
    """Return the job script of a run folder.

    Args:
        folder: Run folder.
        function: Import path of the work.
        runtime: Devices and nodes.
        launcher: What to ask sbatch for.
        name: Name of the job.
        ranks: Whether the work has a rank for each device (pretraining), else it may be an array (a sweep).

    Raises:
        ConfigError: A path has a character that sbatch would replace.
    """
    options = {
        "nodes": str(runtime.num_nodes if ranks else 1),
        "ntasks-per-node": str(runtime.num_devices if ranks else 1),
        **_asked(runtime, launcher, ranks=ranks),
    }
    lines = [f"#SBATCH {flag}" for flag in own_flags(folder, launcher, name=name, ranks=ranks)]
    lines += [f"#SBATCH --{key}={shlex.quote(value)}" for key, value in options.items()]
    lines += [f"#SBATCH {flag}" for flag in launcher.flags]
    python = shlex.quote(launcher.python or sys.executable)
    call = f"exec {python} -m bertline.orchestration.slurm.batch {shlex.quote(str(folder))} {function}"
    return "\n".join(["#!/bin/bash", *lines, "", *launcher.setup, call, ""])


def own_flags(folder: Path, launcher: SlurmLauncherConfig, *, name: str, ranks: bool, quoted: bool = True) -> list[str]:
    """Return the flags by which a job is found again, followed and stopped in time (see `job_script`).

    Args:
        quoted: Whether values are quoted, as a script needs it, but not a command line without a shell.
    """
    place = Path.cwd()
    log = (folder / "log").resolve()
    for path in (place, log):
        if "%" in str(path) or "\\" in str(path) or "\n" in str(path):
            raise ConfigError(f"{path} has a %, a backslash or a line end, which sbatch would replace. Rename it.")
    is_array = not ranks and launcher.sweep_tasks > 1
    options = {
        "job-name": name,
        "chdir": str(place),
        "output": f"{log}.task%a" if is_array else str(log),
        "open-mode": "append",
        "signal": f"USR1@{launcher.stop_before_s}",
        **({"array": f"0-{launcher.sweep_tasks - 1}"} if is_array else {"dependency": "singleton"}),
    }
    quote = shlex.quote if quoted else str
    return [*(f"--{key}={quote(value)}" for key, value in options.items()), "--requeue"]


def srun_command(
    folder: Path, function: str, runtime: RuntimeConfig, launcher: SlurmLauncherConfig, *, ranks: bool
) -> list[str]:
    """Return the command that starts the ranks of a job, one for each device, or the one process of a sweep.

    A rank that fails does not end the others: they notice it within `runtime.peer_timeout_s`, and the first one still
    writes why. None is ended because another has ended: the first one writes the result when the others are done.
    """
    nodes, tasks = (runtime.num_nodes, runtime.num_devices) if ranks else (1, 1)
    cores = _cores(runtime, launcher, ranks=ranks)
    return [
        "srun",
        f"--nodes={nodes}",
        f"--ntasks-per-node={tasks}",
        *([] if cores is None else [f"--cpus-per-task={cores}"]),  # srun does not take it over from sbatch
        "--kill-on-bad-exit=0",
        "--wait=0",
        *launcher.srun_flags,
        *shlex.split(launcher.container or ""),
        launcher.python or sys.executable,
        "-m",
        WORKER,
        str(folder),
        function,
    ]


def _asked(runtime: RuntimeConfig, launcher: SlurmLauncherConfig, *, ranks: bool) -> dict[str, str]:
    cores = _cores(runtime, launcher, ranks=ranks)
    asked = {
        "account": launcher.account,
        "partition": launcher.partition,
        "time": launcher.time,
        "mem": launcher.memory,
        "cpus-per-task": None if cores is None else str(cores),
        "gpus-per-node": str(runtime.num_devices) if launcher.gpus else None,
    }
    return {key: value for key, value in asked.items() if value is not None}


def _cores(runtime: RuntimeConfig, launcher: SlurmLauncherConfig, *, ranks: bool) -> int | None:
    """Return the cores of a task: a sweep is one task, whose processes share the devices of a node."""
    of_device = launcher.cpus_per_task
    return of_device if of_device is None or ranks else of_device * runtime.num_devices
