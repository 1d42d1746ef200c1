"""Who holds DVC's locks, and what to do: DVC's own message advises deleting a lock that protects a running stage.

`python -m bertline.cli.dvc_lock_hint` prints it after a DVC command that failed, as `make repro` does.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from bertline.foundation.files import lock_file
from bertline.foundation.formats import duration

_COMMANDS, _STAGES = Path(".dvc/tmp/lock"), Path(".dvc/tmp/rwlock")
"""Held while a DVC command reads or writes its own files; what running stages read and write, with their processes."""


def dvc_lock_hint(root: Path) -> str | None:
    """Explain in sentences why DVC is busy, and what to do; None if it is not."""
    holders: dict[tuple[int, str], list[str]] = {}
    with suppress(OSError, json.JSONDecodeError):  # no stage has run yet, or DVC is writing the file
        content = json.loads((root / _STAGES).read_text(encoding="utf-8") or "{}")
        for path, holder in content.get("write", {}).items():
            stages = holders.setdefault((holder["pid"], holder["cmd"]), [])
            if Path(path).parent.match("artifacts/metrics"):  # the figures of a stage are named like it
                stages.append(Path(path).stem)
    if not holders and (root / _COMMANDS).exists():
        with (root / _COMMANDS).open("a") as handle:
            if lock_file(handle) is False:
                busy = "another DVC command is reading or writing its records; it takes seconds"
                return f"{busy}. Run the same command again."
    return "\n".join(_of_holder(*holder, stages) for holder, stages in holders.items()) or None


def _of_holder(pid: int, command: str, stages: list[str]) -> str:
    process = None
    with suppress(psutil.Error):
        found = psutil.Process(pid)
        # Another program may have its number by now. A word of the command, not a part of one, names DVC: any program
        # can work in a folder whose path holds "dvc".
        process = found if any(Path(word).name == "dvc" for word in found.cmdline()) else None
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


if __name__ == "__main__":
    if (hint := dvc_lock_hint(Path.cwd())) is not None:
        print(hint, file=sys.stderr)
