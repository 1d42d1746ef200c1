"""A project of its own for a test, as a clone is one, without a person's choices."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def copy_project(target: Path) -> Path:
    """Copy what makes a folder a project: dvc.yaml, conf/ and pipelines/."""
    for folder in ("conf", "pipelines"):
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns("local", "__pycache__"))
    shutil.copy(ROOT / "dvc.yaml", target)
    return target
