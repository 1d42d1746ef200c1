"""Check of Slurm: its commands answer, and whether it keeps accounts of finished jobs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence

from bertline.doctor.finding import Finding, green, red, unused

_COMMANDS = ("sbatch", "squeue", "scontrol")
_ANSWER_S = 8.0


def slurm_findings(*, is_used: bool, script: str = "") -> Iterator[Finding]:
    """Check Slurm.

    Args:
        is_used: Whether the configuration submits jobs, or this process runs in one.
        script: Job script of the configuration; Slurm is asked whether it would take it, and does not.
    """
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if missing:
        if is_used:
            yield red(
                "Slurm",
                f"{', '.join(missing)} cannot be found",
                "Start from a login node of the cluster, or load its module (module load slurm); in a container, "
                "bind Slurm's commands and munge's socket into it.",
            )
        else:
            yield unused("Slurm", "not used: its commands are not here")
        return
    for command in (["scontrol", "ping"], ["squeue", "--noheader", "--me"]):
        status, said = _answer(command)
        if status != 0 or (re.search(r"\bis DOWN\b", said) and not re.search(r"\bis UP\b", said)):
            problem = f"{' '.join(command)}: {said.strip().splitlines()[0] if said.strip() else f'status {status}'}"
            if is_used:
                yield red("Slurm", problem, "Start slurmctld and munged, or correct slurm.conf (SLURM_CONF).")
            else:
                yield unused("Slurm", f"not used: its commands are here, but no controller answers ({problem})")
            return
    takes = ""
    if script:
        status, said = _answer(["sbatch", "--test-only"], script)
        if status != 0:
            yield red(
                "Slurm",
                f"it would not take a job: {_last_line(said)}",
                "Correct runtime.launcher (account, partition, time, memory, flags), runtime.num_nodes or "
                "runtime.num_devices; sinfo shows partitions and nodes.",
            )
            return
        takes = ", would take the job"
    yield green("Slurm", f"{_last_line(_answer(['sbatch', '--version'])[1])}, answers{takes}; {_accounting()}")


def _accounting() -> str:
    _, settings = _answer(["scontrol", "show", "config"])
    storage = re.search(r"^AccountingStorageType\s*=\s*(\S+)", settings, flags=re.MULTILINE)
    if storage is not None and storage[1] not in ("accounting_storage/none", "(null)"):
        return "keeps accounts of finished jobs"
    age = re.search(r"^MinJobAge\s*=\s*(\d+)", settings, flags=re.MULTILINE)
    return (
        f"no accounting, finished jobs are forgotten after {age[1] if age else '300'} s (the run's status file stays)"
    )


def _answer(command: Sequence[str], given: str = "") -> tuple[int, str]:
    """Return exit status and output of a command that reads a text; a status of 124 if it does not answer."""
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {_ANSWER_S:.0f} s"
    return done.returncode, done.stdout + done.stderr


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no answer"
