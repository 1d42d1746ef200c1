"""Inputs of a stage that is run by hand: only those made under its configuration are read; others are refused.

`artifacts/` holds what DVC made last, and dvc.lock records its configuration. If that differs, a result under `runs/`
is read instead, if the earlier stage was run by hand with the same configuration. The recipes of consecutive stages can
therefore be chained by hand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bertline.foundation.errors import ArtifactError, BertlineError
from bertline.foundation.mappings import differences
from bertline.foundation.progress import say, warn
from bertline.orchestration.changed import changed_code, shown, tracked_sections
from bertline.orchestration.config import PipelineConfig
from bertline.orchestration.provenance import locked_stages
from bertline.orchestration.stages import CODE, STAGES, Stage
from bertline.orchestration.status import RESULT_NAME, problem_with_result, read_status

Made = tuple[Stage, str | None]
"""A stage, and the task that it was run for."""


def place_by_hand(path: Path, config: PipelineConfig, folder_of: Callable[[Stage, str | None], Path]) -> Path:
    """Return the path from which a stage that is run by hand reads an input.

    Args:
        path: Path of the artifact, or of the user's data, which is not checked.
        config: Configuration of the stage that reads it.
        folder_of: Returns the run folder of an earlier stage run by hand under this configuration; it may raise.

    Raises:
        ArtifactError: The artifact is missing or was made under another configuration, and no result was made by hand.
    """
    makers = list(_makers_of(path, config))
    if not makers:
        return path
    lock = locked_stages()
    sections = sorted(
        {words for maker in _with_earlier(makers, config) for words in _other_sections(*maker, config, lock)}
    )
    code = sorted({words for maker in makers for words in _other_code(*maker, lock)})
    if path.exists() and not sections and not code:
        return path
    maker, task = makers[0]
    if len(makers) == 1 and Path(maker.output.format(task=task)) == path:
        result = _finished_by_hand(maker, task, folder_of)
        if result is not None:
            say(f"reads {result}, made by hand under this configuration, instead of {path}")
            return result
    command = maker.command(task)
    if not path.exists():
        raise ArtifactError(
            f"{path} is missing. Make it with `dvc repro {maker.full_name(task)}`, or by hand, with what you gave "
            f"here: `{command} ...`."
        )
    if sections:
        raise ArtifactError(
            f"{path} was made under another configuration: {shown(sections)}. Make what is asked for with "
            f"`{command} ...`, given the same keys; its result is found then. Or leave these keys as they are."
        )
    warn(f"{path} was made by other code ({shown(code)}). To make it again: {command} ..., or dvc repro")
    return path


def _makers_of(path: Path, config: PipelineConfig) -> Iterator[Made]:
    """Yield the stages that write an artifact, or the artifacts inside it."""
    for stage in STAGES:
        for task in config.tasks if stage.per_task else (None,):
            output = Path(stage.output.format(task=task))
            if output == path or (stage.per_task and output.parent == path):
                yield stage, task


def _with_earlier(makers: list[Made], config: PipelineConfig) -> list[Made]:
    """Return the stages, and all stages before them."""
    found: list[Made] = []
    waiting = list(makers)
    while waiting:
        stage, task = waiting.pop()
        if (stage, task) not in found:
            found.append((stage, task))
            for template in stage.inputs:
                waiting.extend(_makers_of(Path(template.format(task=task)), config))
    return found


def _other_sections(stage: Stage, task: str | None, config: PipelineConfig, lock: Mapping[str, Any]) -> list[str]:
    """Return the keys whose value differs from the one an artifact was made under; none if dvc.lock has no record."""
    made_under = lock.get(stage.full_name(task), {}).get("params", {}).get("params.yaml")
    if made_under is None:
        return []
    changes = differences(made_under, tracked_sections(stage, task, config))
    if stage.name == "pretrain" and changes:
        from bertline.pretraining.job import changes_no_weights  # imported here, because it loads torch

        changes = {key: values for key, values in changes.items() if not changes_no_weights(key)}
    return [f"{key} ({old!r} there, {new!r} here)" for key, (old, new) in changes.items()]


def _other_code(stage: Stage, task: str | None, lock: Mapping[str, Any]) -> list[str]:
    path = CODE / stage.name
    locked = {entry["path"]: entry.get("md5") for entry in lock.get(stage.full_name(task), {}).get("deps", [])}
    if path.as_posix() not in locked or not path.exists():
        return []
    same = locked[path.as_posix()] == hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    return changed_code(stage) if same else [f"stage {stage.name}"]


def _finished_by_hand(stage: Stage, task: str | None, folder_of: Callable[[Stage, str | None], Path]) -> Path | None:
    try:
        folder = folder_of(stage, task)
    except BertlineError:
        return None  # the inputs of that stage are missing too
    result, status = folder / RESULT_NAME, read_status(folder)
    if stage.in_worker and (status.state != "finished" or problem_with_result(folder, status)):
        return None
    return result if result.is_dir() else None
