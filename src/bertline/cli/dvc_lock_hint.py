"""Who holds DVC's locks, and what to do: DVC's own message advises deleting a lock that protects a running stage.

`python -m bertline.cli.dvc_lock_hint` prints it after a DVC command that failed, as `make repro` does.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from bertline.foundation.files import lock_file
from bertline.foundation.formats import duration

_FOLDER = Path(".dvc/tmp")
_COMMANDS = _FOLDER / "lock"
"""Held while a DVC command reads or writes its own files; free while a stage runs."""
_STAGES = _FOLDER / "rwlock"
"""What running stages read and write, with the process of their DVC command."""
# The figures of a stage are named like the stage.
_FIGURES = re.compile(r".*/artifacts/metrics/(?P<stage>[^/]+)\.json")


def dvc_lock_hint(root: Path) -> str | None:
    """Explain in sentences why DVC is busy, and what to do; None if it is not."""
    sentences = [_of_holder(*holder, stages) for holder, stages in _holders(root / _STAGES).items()]
    if not sentences and _is_held(root / _COMMANDS):
        return "another DVC command is reading or writing its records; it takes seconds. Run the same command again."
    return "\n".join(sentences) or None


def _of_holder(pid: int, command: str, stages: list[str]) -> str:
    process = _dvc_process(pid)
    if process is None:
        # DVC drops the entry of a process that has ended, but not one whose number another program has.
        return (
            f"process {pid} ({command}) was killed and left its lock behind; no DVC runs. Run the same "
            f"command again. Should DVC still say that it is busy, delete {_STAGES}."
        )
    since = duration(time.time() - process.create_time())
    at = f" and is at stage {', '.join(stages)}" if stages else ""
    return (
        f"process {pid} (dvc, for {since}) is running{at}. Wait for it, or press Ctrl-C in its terminal."
        f"\nDo not delete {_STAGES}: two runs would write the same files."
    )


def _dvc_process(pid: int) -> psutil.Process | None:
    """Return the process, if it is running and a DVC command; another program may have its number by now."""
    try:
        process = psutil.Process(pid)
        # a word of the command, not a part of one: any program can work in a folder whose path holds "dvc"
        return process if any(Path(word).name == "dvc" for word in process.cmdline()) else None
    except psutil.Error:
        return None


def _holders(path: Path) -> dict[tuple[int, str], list[str]]:
    """Return the processes (number, command) that a `rwlock` names, with the stages whose figures they write."""
    try:
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8") or "{}")
    except (OSError, json.JSONDecodeError):
        return {}  # no stage has run yet, or DVC is writing the file
    written = [*content.get("write", {}).items()]
    read = [("", holder) for holders in content.get("read", {}).values() for holder in holders]
    stages: dict[tuple[int, str], list[str]] = {}
    for path_written, holder in written + read:
        names = stages.setdefault((holder["pid"], holder["cmd"]), [])
        if figures := _FIGURES.fullmatch(path_written):
            names.append(figures["stage"])
    return stages


def _is_held(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("a") as handle:
        return lock_file(handle) is False


if __name__ == "__main__":
    if (hint := dvc_lock_hint(Path.cwd())) is not None:
        print(hint, file=sys.stderr)
