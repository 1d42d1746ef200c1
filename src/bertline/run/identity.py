"""What a stage's result depends on besides its settings and artifacts: code, package versions and the user's data.

DVC sees files. So `configure` writes what there is to look at for each stage (`artifacts/watched.json`),
`pipelines/identity.py` at every `dvc repro` what is there now (`artifacts/identity/STAGE.json`), and a stage that runs
compares that with what it finds itself.
"""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.foundation.checked import user_data_in
from bertline.foundation.errors import BertlineError, ConfigError
from bertline.foundation.files import read_json, sha256_of_path, write_json
from bertline.foundation.mappings import value_at
from bertline.foundation.plugins import packages_in
from bertline.stages.base import ARTIFACTS, PYTHON_DOCS, Stage

if TYPE_CHECKING:
    from bertline.config import PipelineConfig

WATCHED = ARTIFACTS / "watched.json"
IDENTITY = ARTIFACTS / "identity"
_DIGESTS, _MOST_KEPT = "digests.json", 1000
_MUST_BE_OLDER_S = 2.0


def identity_of_stage(watched: Mapping[str, Any], runs_folder: Path) -> dict[str, Any]:
    """Return what is there now of what a stage depends on.

    Args:
        watched: `code` (a digest of each module), `packages` (names of distributions) and `data` (paths by key).
        runs_folder: Where digests of files are remembered.

    Returns:
        `code`; `versions` by distribution, without local build tags (`2.13.0+cpu` is `2.13.0`), with `python`, the
        minor version; `data`, a digest of each path.
    """
    data = {key: Path(path) for key, path in watched["data"].items()}
    for key, path in data.items():
        require_data(key, path)
    versions = {name: _installed(name) for name in sorted(watched["packages"], key=str.lower)}
    versions["python"] = ".".join(platform.python_version_tuple()[:2])
    return {"code": watched["code"], "versions": versions, "data": digests_of_inputs(data, runs_folder)}


@cache
def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution).split("+")[0]
    except metadata.PackageNotFoundError:
        return "not installed"  # the stage that needs it reports how to install it


def packages_of(stage: Stage, task: str | None, config: Mapping[str, Any]) -> list[str]:
    """Return the distributions whose versions a stage's result depends on under a configuration.

    Those of parts that entry points name (`foundation.plugins`) are among them.
    """
    names = {*stage.packages, *stage.more_packages(config, task)}
    for section in stage.sections:
        names |= packages_in(value_at(config, section.format(task=task)))
    if PYTHON_DOCS in names:
        names.remove(PYTHON_DOCS)
        listed = (package["distribution"] for package in config["python_docs"]["packages"])
        names.update(name for name in listed if name is not None)  # the standard library comes with Python
    return sorted(names)


def data_of(stage: Stage, task: str | None, config: PipelineConfig) -> dict[str, Path]:
    """Return the user's data that a stage reads on this machine, by the key that names it."""
    keys = tuple(f"{key.format(task=task)}." for key in stage.data)
    data = (data for data in user_data_in(config) if f"{data.key}.".startswith(keys))
    return {data.key: base_of(data.path) for data in data if data.is_here}


def require_data(key: str, path: Path) -> None:
    """Check that the user's data, or a glob's folder, exists and is no empty folder; hidden files do not count."""
    base = base_of(str(path))
    if not (base.is_file() or any(not inner.name.startswith(".") for inner in base.glob("*"))):
        wrong = "is an empty folder" if path.exists() else "does not exist"
        raise ConfigError(
            f"{key}: {path} {wrong} (in {Path.cwd()}). Put your data there, or name the path where it is: "
            f"{key}=/path/to/it"
        )


def require_watchable(key: str, path: Path) -> None:
    """Check that DVC can be told of every change in the user's data, and of no other."""
    if path.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise ConfigError(f"{key} is {path}, which holds bertline itself; put the data into a folder of its own.")
    linked = (inner for inner in path.rglob("*") if inner.is_symlink() and inner.is_dir())
    if (inner := next(linked, None)) is not None:
        raise ConfigError(
            f"{key}: {inner} is a link to a folder, where a change would go unnoticed. Name the folder that holds the "
            "data, or copy the files in."
        )


def base_of(path: str) -> Path:
    """Return the longest leading part of a path without wildcards: the folder that a glob searches."""
    whole = Path(path).expanduser()
    if whole.exists() or not glob.has_magic(path):  # brackets may also be part of a name
        return whole
    return Path(*takewhile(lambda part: not glob.has_magic(part), whole.parts))


def digests_of_inputs(
    inputs: Mapping[str, Path], runs_folder: Path, digest: Callable[[Path], str] = sha256_of_path
) -> dict[str, str]:
    """Return the digest of each input, a file or a folder.

    Every command needs them, and hashing 100 GB takes minutes, so a digest is kept in `runs_folder` with a mark of the
    files that it was computed from: their names, sizes, inodes and change times, which nobody can set back.
    """
    path = runs_folder / _DIGESTS
    kept: dict[str, str] = {}
    with suppress(BertlineError):
        kept = read_json(path) if path.exists() else {}
    digests, new = dict[str, str](), dict[str, str]()
    for name, place in inputs.items():
        state, newest = _mark_of(place)
        mark = state if digest is sha256_of_path else f"{digest.__name__} {state}"
        digests[name] = kept.get(mark) or digest(place)
        # A file system that dates changes coarsely may give a later one the same time. git has the
        # same rule.
        if mark not in kept and time.time() - newest > _MUST_BE_OLDER_S and _mark_of(place)[0] == state:
            new[mark] = digests[name]
    if new:
        with suppress(BertlineError):  # keeping them only saves time
            write_json(path, {**(kept if len(kept) < _MOST_KEPT else {}), **new})
    return digests


def changed_inputs(before: Mapping[str, str], inputs: Mapping[str, Path], runs_folder: Path) -> list[str]:
    """Return the paths of inputs that are gone, or whose content has another digest than before."""
    present = digests_of_inputs({name: path for name, path in inputs.items() if path.exists()}, runs_folder)
    return [path.as_posix() for name, path in inputs.items() if present.get(name) != before[name]]


def _mark_of(path: Path) -> tuple[str, float]:
    """Return a mark of a file's or folder's state, and when it was last changed, in seconds of the epoch."""
    files = [path]
    if path.is_dir():  # unlike rglob, os.walk does not fail where a folder is removed meanwhile
        files = sorted(Path(place, name) for place, _, names in os.walk(path) for name in names)
    digest, newest = hashlib.sha256(), 0.0
    for file in files:
        with suppress(FileNotFoundError):
            status = file.stat()
            digest.update(f"{file}\0{status.st_size}\0{status.st_ino}\0{status.st_ctime_ns}\n".encode())
            newest = max(newest, status.st_ctime)
    return digest.hexdigest()[:16], newest
