"""Processes of the benchmarks: clones that stages run in, environments of sides, processor time and memory."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import repository_source  # noqa: F401

from bertline.training.environment import environment_for_training

ROOT = Path(__file__).resolve().parents[1]
EnvironmentChoice = Literal["same", "own"]
"""Environment of the peers: bertline's (`same`), or the one that the benchmark was started in."""
_VARIABLES = ("GOMP_SPINCOUNT", "GLIBC_TUNABLES", "OMP_WAIT_POLICY", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM")


class Clone:
    """A clone of this repository in which the stages run; one that is there is taken as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        if not folder.exists():
            subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(folder)], check=True)

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which commands find this Python's programs and the clone's source."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "PYTHONPATH": str(self.folder / "src"), "DVC_NO_ANALYTICS": "1"}

    def run(self, *arguments: str, **variables: str) -> None:
        """Run Python with arguments in the clone; exits if it fails. What it prints goes to standard error."""
        environment = self.environment | variables
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.folder, env=environment, stdout=sys.stderr, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(arguments)} failed in {self.folder}; after mending it, repeat this call.")

    def configure(self, *choices: str) -> None:
        """Keep choices of the configuration, in place of earlier ones."""
        (self.folder / "conf/local/default.yaml").unlink(missing_ok=True)
        self.run("-m", "bertline", "configure", *choices, "--save")

    def reproduce(self, *stages: str, **variables: str) -> None:
        """Run the pipeline, or the pipeline up to some stages."""
        self.run("-m", "dvc", "repro", *stages, **variables)


def side_environment(side: str, *, threads: int, choice: EnvironmentChoice = "same") -> dict[str, str]:
    """Return the environment of the process that measures `side`."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    return environment_for_training(environment) if side == "bertline" or choice == "same" else environment


def facts_of_environment(*, threads: int, choice: EnvironmentChoice = "same") -> dict[str, dict[str, str]]:
    """Return the variables that affect speed, of bertline and of the peers, for a record."""
    return {
        name: {key: value for key, value in sorted(found.items()) if key in _VARIABLES or key.startswith("MALLOC_")}
        for name, found in (
            ("bertline", side_environment("bertline", threads=threads, choice=choice)),
            ("peers", side_environment("peer", threads=threads, choice=choice)),
        )
    }


def versions_in(python: str, packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those of the packages that another Python has."""
    has = "if next(iter(m.distributions(name=n)), None)"
    code = (
        f"import json, sys, importlib.metadata as m; print(json.dumps({{n: m.version(n) for n in sys.argv[1:] {has}}}))"
    )
    versions: dict[str, str] = json.loads(subprocess.check_output([python, "-c", code, *packages], text=True))
    return versions


def processor_seconds() -> float:
    """Return the processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def held_bytes(process: Any) -> dict[int, int]:
    """Return what a process of psutil and its descendants hold each for themselves (`RssAnon`), by process id.

    The system can take back the pages of mapped files; these it cannot.
    """
    import psutil

    try:
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        family = [process]
    held = {}
    for one in family:
        try:
            status = Path(f"/proc/{one.pid}/status").read_text()
        except OSError:  # it has ended meanwhile
            continue
        match = re.search(r"^RssAnon:\s+(\d+)", status, re.MULTILINE)
        held[one.pid] = int(match[1]) * 1024 if match else 0
    return held
