"""Stand-ins for Slurm's commands, which say what a test gives them, and a launcher that asks for little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertline.training.config import SlurmLauncherConfig


def launcher(**changes: Any) -> SlurmLauncherConfig:
    """A launcher that leaves all to the cluster but one GPU a device, with changes."""
    none = dict.fromkeys(("account", "partition", "time", "memory", "cpus_per_task", "container", "python"))
    more = dict.fromkeys(("setup", "flags", "srun_flags"), ())
    fields = {**none, **more, "gpus": True, "sweep_tasks": 1, "stop_before_s": 120, "max_requeues": 3}
    return SlurmLauncherConfig(kind="slurm", **{**fields, **changes})


def says(programs: Path, name: str, text: str, *, status: int = 0, error: str = "") -> None:
    """Make one that prints a text, and an error, and ends with a status."""
    path = programs / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\necho '{error}' >&2\nexit {status}\n")
    path.chmod(0o755)
