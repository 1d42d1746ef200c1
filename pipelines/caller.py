"""Paths given by the caller, for recipes that are started from any folder and run in that of the repository."""

from pathlib import Path

STARTED_IN = Path.cwd()  # before a recipe changes the working directory


def of_caller(path: str) -> Path:
    """Resolve a path relative to the folder the caller started in, with `~` as the home folder."""
    return STARTED_IN / Path(path).expanduser()
