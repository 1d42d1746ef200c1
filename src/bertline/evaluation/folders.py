"""Where a finished line's artifacts lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class LineFolders:
    """The folders that the report is made from.

    Where nothing was pretrained, `corpus`, `tokenizer` and `examples` are None, and `pretrain` holds the checkpoint.
    """

    corpus: Path | None
    tokenizer: Path | None
    examples: Path | None
    pretrain: Path
    tasks: dict[str, Path]
    sweeps: dict[str, Path]
    metrics: Path
    """The folder of `STAGE.json` files."""
    params: dict[str, Any]
    """The whole configuration, as plain data."""
