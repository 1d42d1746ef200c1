"""The project that a command works in: a clone of bertline, in the folder where the command is given or above it."""

import os
import sys
from pathlib import Path

from bertline.foundation.errors import ConfigError

try:
    STARTED_IN = Path.cwd()
except FileNotFoundError:
    sys.exit("error: the working folder was deleted. Change to another one and give the command again.")
"""Folder where the command was given, before it changes to that of the project."""
_MARKS = ("dvc.yaml", "conf/config.yaml", "pipelines")


def enter_project() -> bool:
    """Change to the folder of the project; outside of one, stay and return False."""
    for folder in (STARTED_IN, *STARTED_IN.parents):
        if all((folder / mark).exists() for mark in _MARKS):
            os.chdir(folder)
            return True
    return False


def require_project(command: str) -> None:
    """Change to the folder of the project; ConfigError if there is none."""
    if not enter_project():
        raise ConfigError(
            f"`bertline {command}` works in a clone of bertline, which has {', '.join(_MARKS)}. Neither {STARTED_IN} "
            "nor a folder above it is one. Change to your clone and give the command again."
        )


def conf_folder() -> Path:
    """Return `conf/` of the project, else the one that the installed package carries."""
    own = Path("conf").resolve()
    # Other programs with Hydra have a conf/config.yaml, too.
    return own if (own / "finetune.yaml").is_file() else Path(__file__).resolve().parents[1] / "conf"


def folder_or_name(named: str) -> Path | str:
    """Return a path relative to the folder of the command, if it is there; else the name, of a model on the hub."""
    return of_caller(named) if of_caller(named).exists() else named


def of_caller(path: str) -> Path:
    """Resolve a path relative to the folder where the command was given, with `~` as the home folder."""
    return STARTED_IN / Path(path).expanduser()
