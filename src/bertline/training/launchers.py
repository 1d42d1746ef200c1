"""How a worker is started: as a process of this machine, or as a job of Slurm."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# Minutes, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, ...: sbatch(1), --time.
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})")
_OURS = (
    "--job-name",
    "--array",
    "--chdir",
    "--dependency",
    "--output",
    "--error",
    "--open-mode",
    "--signal",
    "--requeue",
    "--no-requeue",
)
_OURS_SHORT = ("-J", "-a", "-D", "-d", "-o", "-e")
"""Flags of sbatch by which a job is found again, followed and stopped in time."""
_LONGEST_NOTICE_S = 65_535  # sbatch's


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalLauncherConfig:
    """A process of this machine; with several devices, one process for each, started by torchrun."""

    kind: Literal["local"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmLauncherConfig:
    """A job of Slurm on `runtime.num_nodes` nodes, with one task for each of `runtime.num_devices` devices."""

    kind: Literal["slurm"]
    account: str | None
    """Account to charge (`--account`). None: the user's default."""
    partition: str | None
    """Partition (`--partition`). None: the cluster's default."""
    time: str | None
    """Time limit of one start of the job, such as `4:00:00`; then the job is requeued. None: the partition's limit."""
    memory: str | None
    """Memory of each node, such as `64G` (`--mem`). None: the cluster's default."""
    cpus_per_task: int | None
    """CPU cores for each device. None: the cluster's default."""
    gpus: bool
    """Whether to request `runtime.num_devices` GPUs of each node (`--gpus-per-node`)."""
    container: str | None
    """Command that starts the program after it inside a container, such as `apptainer exec --nv bertline.sif`."""
    python: str | None
    """Python of the job. None: the one that runs this command, which needs a file system that the nodes share."""
    setup: tuple[str, ...]
    """Lines of bash that the job runs first, such as `module load cuda`."""
    flags: tuple[str, ...]
    """Any further flags of sbatch, such as `--qos=low`."""
    srun_flags: tuple[str, ...]
    """Any further flags of the srun that starts the ranks, such as `--container-image=bertline.sqsh`."""
    sweep_tasks: int
    """Number of tasks of a sweep's job array, each on a node of its own; they share one study in PostgreSQL."""
    stop_before_s: int
    """Seconds before the time limit at which the job is asked to save, stop and be requeued."""
    max_requeues: int
    """Number of consecutive requeues without progress after which the job fails."""

    def __post_init__(self) -> None:
        for name in ("sweep_tasks", "stop_before_s"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.cpus_per_task is not None and self.cpus_per_task < 1:
            raise ValueError(f"cpus_per_task must be at least 1, or null, found {self.cpus_per_task}")
        if self.max_requeues < 0:
            raise ValueError(f"max_requeues must not be negative, found {self.max_requeues}")
        if self.time is not None and not _TIME.fullmatch(self.time):
            raise ValueError(f"time must be a limit as sbatch takes it, such as '4:00:00', found {self.time!r}")
        most = _LONGEST_NOTICE_S if self.time is None else min(_LONGEST_NOTICE_S, seconds_of(self.time) // 2)
        if self.stop_before_s > most:
            limit = f"at most {most}" if self.time is None else f"at most half of time ({self.time!r}: {most} seconds)"
            fix = f"Lower it to {most}" + ("" if self.time is None else ", or raise time")
            raise ValueError(
                f"stop_before_s must be {limit}, found {self.stop_before_s}: Slurm asks up to a minute early, and a "
                f"start must have time to train. {fix}"
            )
        for flag in self.flags:
            name = re.split(r"[=\s]", flag)[0]
            if name[:2] in _OURS_SHORT or (name.startswith("--") and any(own.startswith(name) for own in _OURS)):
                raise ValueError(f"flags must not contain {name}: jobs are found and followed by it")
            if not flag.startswith("-"):
                raise ValueError(f"flags are flags of sbatch, such as --qos=low, found {flag!r}")
        for field, text in (("flags", self.flags), ("srun_flags", self.srun_flags), ("setup", self.setup)):
            if any("\n" in line for line in text):
                raise ValueError(f"each line of {field} must be one line")


def seconds_of(time: str) -> int:
    """Return a time limit of sbatch in seconds.

    >>> [seconds_of(time) for time in ("90", "90:30", "4:00:00", "1-12", "1-12:30")]
    [5400, 5430, 14400, 129600, 131400]
    """
    found = _TIME.fullmatch(time)
    assert found is not None
    parts = [int(part) for part in found["rest"].split(":")]
    if found["days"] is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return ((int(found["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    hours, minutes, seconds = {1: (0, *parts, 0), 2: (0, *parts)}.get(len(parts), tuple(parts))
    return (hours * 60 + minutes) * 60 + seconds


LauncherConfig = LocalLauncherConfig | SlurmLauncherConfig
