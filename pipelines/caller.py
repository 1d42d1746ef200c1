"""Paths that a caller gives, for recipes that are started from any folder and run in that of the repository."""

from pathlib import Path

STARTED_IN = Path.cwd()  # taken before a recipe changes the folder


def of_caller(path: str) -> Path:
    """A path as the caller means it: from the caller's folder, with `~` as the caller's home."""
    return STARTED_IN / Path(path).expanduser()
