"""What the process of a side runs in: the environment of bertline's training by default, another Python for peers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Literal

import repository_source  # noqa: F401

from bertline.training.environment import environment_for_training

EnvironmentChoice = Literal["same", "own"]
"""Environment of the peers: bertline's (`same`), or the one that the benchmark was started in (`own`)."""
_VARIABLES = ("GOMP_SPINCOUNT", "GLIBC_TUNABLES", "OMP_WAIT_POLICY", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM")


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
