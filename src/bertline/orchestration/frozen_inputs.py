"""Checks that the inputs of a run folder are still those it was opened with.

A run is named after the content of its inputs. That content may change while a worker waits in a queue or trains for
days: an earlier stage that runs again writes to the same paths.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertline.foundation.files import sha256_of_path


def marks_of(inputs: Mapping[str, Path]) -> dict[str, str]:
    """Return a digest of the names, sizes, inodes and change times of each input's files, which are not read.

    Compute it before the content is hashed, so that a change in between is noticed.
    """
    return {key: _mark(path) for key, path in inputs.items()}


def changed_inputs(frozen: Mapping[str, Any]) -> list[str]:
    """Return the paths of the inputs whose content differs from the frozen one; missing inputs are not included.

    Args:
        frozen: Content of a run folder's config.yaml. Only inputs whose mark differs from that in `input_marks` are
            read, since hashing 100 GB takes minutes.
    """
    digests: Mapping[str, str] = frozen.get("made_of", {}).get("inputs", {})
    marks: Mapping[str, str] = frozen.get("input_marks", {})
    paths = {key: Path(frozen["inputs"][key]) for key in digests}
    return [
        path.as_posix()
        for key, path in paths.items()
        if _mark(path) != marks.get(key) and _is_other(path, digests[key])
    ]


def missing_inputs(frozen: Mapping[str, Any]) -> list[str]:
    """Return the paths of missing inputs; they may come back, for example when the stage that makes them has run again.

    Args:
        frozen: See `changed_inputs`.
    """
    keys = frozen.get("made_of", {}).get("inputs", {})
    return [path for path in (frozen["inputs"][key] for key in keys) if not Path(path).exists()]


def _is_other(path: Path, digest: str) -> bool:
    try:
        return path.exists() and sha256_of_path(path) != digest
    except FileNotFoundError:
        return False  # it is being removed


def _mark(path: Path) -> str:
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        with suppress(FileNotFoundError):
            status = file.stat()
            # Unlike the modification time, the change time cannot be set back.
            digest.update(f"{file}\0{status.st_size}\0{status.st_ino}\0{status.st_ctime_ns}\n".encode())
    return digest.hexdigest()[:16]
