"""Who holds DVC's locks, and what to do: DVC's own message advises deleting a lock that protects a running stage."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bertline.foundation.files import try_lock
from bertline.foundation.formats import duration
from bertline.orchestration.stages import STAGES

_FOLDER = Path(".dvc/tmp")
_COMMANDS = _FOLDER / "lock"
"""Held while a DVC command reads or writes its own files; free while a stage runs."""
_STAGES = _FOLDER / "rwlock"
"""What running stages read and write, with the process of their DVC command."""
# The figures of a stage are named like the stage.
_FIGURES = re.compile(r".*/artifacts/metrics/(?P<stage>[^/]+)\.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A process that a lock names."""

    pid: int
    command: str
    stages: tuple[str, ...]

    @property
    def process(self) -> psutil.Process | None:
        """The process, if it is running and a DVC command; another program may have its number by now."""
        try:
            process = psutil.Process(self.pid)
            return process if any("dvc" in word for word in process.cmdline()) else None
        except psutil.Error:
            return None


def explanation(root: Path) -> str | None:
    """Explain in sentences why DVC is busy, and what to do; None if it is not.

    Args:
        root: The folder of the repository.
    """
    said = [_of_holder(holder) for holder in _holders(root / _STAGES)]
    if not said and _is_held(root / _COMMANDS):
        said = ["another DVC command is reading or writing its records; it takes seconds. Run the same command again."]
    return "\n".join(said) or None


def _of_holder(holder: Holder) -> str:
    process = holder.process
    if process is None:
        # DVC drops the entry of a process that has ended, but not one whose number another program has.
        return (
            f"process {holder.pid} ({holder.command}) was killed and left its lock behind; no DVC runs. Run the same "
            f"command again. Should DVC still say that it is busy, delete {_STAGES}."
        )
    since = duration(time.time() - process.create_time())
    at = f" and is at stage {', '.join(holder.stages)}" if holder.stages else ""
    watch = "".join(f" To watch it: {command}" for stage in holder.stages for command in _commands_that_attach(stage))
    return (
        f"process {holder.pid} (dvc, for {since}) is running{at}. Wait for it, or press Ctrl-C in its terminal.{watch}"
        f"\nDo not delete {_STAGES}: two runs would write the same files."
    )


def _commands_that_attach(name: str) -> Iterator[str]:
    """Yield the command that shows a running stage, if its work is in a worker; others would start again."""
    stage, _, task = name.partition("@")
    if any(one.name == stage and one.in_worker for one in STAGES):
        yield f"python pipelines/{stage}.py{f' task_name={task}' if task else ''}"


def _holders(path: Path) -> Iterator[Holder]:
    """Yield the processes that a `rwlock` names, with the stages whose figures they write."""
    try:
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8") or "{}")
    except (OSError, json.JSONDecodeError):
        return  # no stage has run yet, or DVC is writing the file
    stages: dict[tuple[int, str], list[str]] = {}
    for written, holder in content.get("write", {}).items():
        found = stages.setdefault((holder["pid"], holder["cmd"]), [])
        if figures := _FIGURES.fullmatch(written):
            found.append(figures["stage"])
    for holders in content.get("read", {}).values():
        for holder in holders:
            stages.setdefault((holder["pid"], holder["cmd"]), [])
    for (pid, command), names in stages.items():
        yield Holder(pid=pid, command=command, stages=tuple(names))


def _is_held(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("a") as handle:
        return not try_lock(handle)
