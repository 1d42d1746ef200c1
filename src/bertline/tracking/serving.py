"""What is registered: how MLflow loads an exported folder, and under which alias and scores. Imports no MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bertline.tracking.champions import Standing


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Serving:
    """How MLflow loads a folder, and the table that goes in and out."""

    loader_module: str
    """Module with MLflow's function `_load_pyfunc(path, model_config)`; nothing is pickled."""
    inputs: Mapping[str, str]
    """What each column holds: `text`, `texts` (a list) or `text or texts`. All are required."""
    outputs: pa.Schema
    params: Mapping[str, int]
    """Parameters of a request with their defaults."""
    settings: Mapping[str, Any]
    """Settings of the loader with their defaults."""
    example: Mapping[str, Any]
    """A row of inputs, made up: it goes to every tracking server, so it must not be a user's."""
    packages: tuple[str, ...]
    """Packages that the loader needs; their installed versions are pinned."""
    dataset: tuple[str, str] | None = None
    """Name of the task and path of its rows, on which the scores were measured; None without scores."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Registration:
    """How a folder is registered as a version of a model."""

    alias: str
    """Alias that always moves to this version."""
    tags: Mapping[str, str]
    """Tags of a new version."""
    serving: Serving
    standing: Standing | None = None
    """Scores of the version. The alias of the standing moves to this version if no version has it or this version beats
    the one that has it."""
