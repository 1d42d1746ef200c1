"""Paths of the artifacts of a finished pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineFolders:
    """Folders from which the report is made.

    Without pretraining, `corpus`, `tokenizer` and `examples` are None, and `pretrain` contains the checkpoint.
    """

    corpus: Path | None
    tokenizer: Path | None
    examples: Path | None
    pretrain: Path
    tasks: dict[str, Path]
    sweeps: dict[str, Path]
    metrics: Path
    """Folder of the `STAGE.json` files."""
    params: dict[str, Any]
    """Complete configuration, as plain data."""
