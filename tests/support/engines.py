"""Engines for data stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertline.foundation.engine import LocalEngine


def local(out: Path, num_workers: int = 0) -> dict[str, Any]:
    """Return the arguments `engine` and `work` of a stage that writes `out`: processes here, a folder next to it."""
    return {"engine": LocalEngine(num_workers), "work": out.with_name(f"{out.name}.work")}
