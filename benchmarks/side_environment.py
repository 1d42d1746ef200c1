"""The environment of a side: bertline's is the one that its line starts training in."""

from __future__ import annotations

import os

import repository_source  # noqa: F401

from bertline.training.environment import environment_for_training


def side_environment(side: str, *, threads: int, same_for_all: bool = False) -> dict[str, str]:
    """Of a process that measures `side`; with `same_for_all` the peers get bertline's as well."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    return environment_for_training(environment) if side == "bertline" or same_for_all else environment
