"""Checks that nothing a stage depends on changed while it ran; else DVC would record the wrong origin of a result.

DVC reads params.yaml, the code fingerprints and the inputs after a stage has ended, and writes them to dvc.lock with
the result. A stage uses what it froze when it started. If the two differ, the stage fails, so that DVC records nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from bertline.foundation.errors import ArtifactError, BertlineError, ConfigError
from bertline.foundation.files import read_json, sha256_of_path
from bertline.foundation.mappings import differences, value_at
from bertline.foundation.validation import to_mapping
from bertline.orchestration.config import SECTIONS, PipelineConfig, pipeline_config
from bertline.orchestration.fingerprints import code_fingerprint
from bertline.orchestration.stages import CODE, Stage

PARAMS = Path("params.yaml")
_MOST_NAMED = 5
_CONFIGURATION = "the configuration"


def tracked_sections(stage: Stage, task: str | None, config: PipelineConfig) -> dict[str, Any]:
    """Return the part of a configuration that a result depends on, `{"tasks.docs_library": {...}, "sweep": ...}`."""
    whole = to_mapping(config)
    return {key: value_at(whole, key) for key in (template.format(task=task) for template in stage.sections)}


def changed_sections(stage: Stage, task: str | None, frozen: Mapping[str, Any]) -> list[str]:
    """Return the keys of params.yaml whose value changed since a stage started, with both values, as text."""
    try:
        if not PARAMS.exists():
            raise ConfigError(f"{PARAMS} is missing. Run `dvc repro configure`.")
        present = yaml.safe_load(PARAMS.read_text(encoding="utf-8")) or {}
        config = pipeline_config({key: present[key] for key in SECTIONS if key in present})
        now = tracked_sections(stage, task, config)
    except BertlineError as error:
        return [f"{PARAMS} ({error})"]
    return [f"{key} (was {old!r}, is {new!r})" for key, (old, new) in differences(dict(frozen), now).items()]


def changed_code(stage: Stage, frozen: Mapping[str, str] | None = None) -> list[str]:
    """Return the modules whose code changed since a stage started, or since `configure` recorded it for DVC."""
    now = code_fingerprint(stage)
    frozen = now if frozen is None else frozen
    path = CODE / stage.name
    recorded: Mapping[str, Any] = read_json(path) if path.exists() else now
    return sorted(name for name in {*frozen, *now} if not frozen.get(name) == now.get(name) == recorded.get(name))


def refuse_changes(name: str, changed: Mapping[str, list[str]], *, kept: Path | None = None) -> None:
    """Fail if something changed; the error names what changed, where the result is kept, and what to do.

    Args:
        name: Name of the stage in DVC.
        changed: Names of what changed under `the configuration`, `the code` and `what it reads`.
        kept: Where the result is kept, if there is one.

    Raises:
        ArtifactError: Something changed.
    """
    words = {title: f"{title}: {shown(names)}" for title, names in changed.items() if names}
    if not words:
        return
    lies = "" if kept is None else f" Its result is kept in {kept}."
    take = " To take that result, set the configuration back first." if kept and [*words] == [_CONFIGURATION] else ""
    raise ArtifactError(
        f"stage {name}: what it depends on changed since it started, so DVC would record it wrongly. "
        f"Changed: {'; '.join(words.values())}.{lies} Run `dvc repro` again: the stage runs with what is there now."
        f"{take}"
    )


def shown(names: list[str]) -> str:
    """Return the first names of a list, and how many more there are, as text."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def marks_of(inputs: Mapping[str, Path]) -> dict[str, str]:
    """Return a digest of the names, sizes, inodes and change times of each input's files, which are not read.

    Compute it before the content is hashed, so that a change in between is noticed.
    """
    return {key: mark_of(path)[0] for key, path in inputs.items()}


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
        if mark_of(path)[0] != marks.get(key) and _is_other(path, digests[key])
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


def files_now_in(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and below, in no order, for a folder that other processes may be changing.

    A folder that cannot be listed is left out, for example one that has just been renamed or removed; there,
    `Path.rglob` would raise.
    """
    for place, _, names in os.walk(folder):
        yield from (path for name in names if (path := Path(place, name)).is_file())


def mark_of(path: Path) -> tuple[str, float]:
    """Return the mark of a file or a folder (see `marks_of`), and when it was last changed, in seconds of the epoch."""
    files = sorted(files_now_in(path)) if path.is_dir() else [path]
    digest, newest = hashlib.sha256(), 0.0
    for file in files:
        with suppress(FileNotFoundError):
            status = file.stat()
            # Unlike the modification time, the change time cannot be set back.
            digest.update(f"{file}\0{status.st_size}\0{status.st_ino}\0{status.st_ctime_ns}\n".encode())
            newest = max(newest, status.st_ctime)
    return digest.hexdigest()[:16], newest
