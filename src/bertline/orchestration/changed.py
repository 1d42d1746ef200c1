"""Checks that nothing a stage depends on changed while it ran; else DVC would record the wrong origin of a result.

DVC reads params.yaml, the code fingerprints and the inputs after a stage has ended, and writes them to dvc.lock with
the result. A stage uses what it froze when it started. If the two differ, the stage fails, so that DVC records nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bertline.foundation.errors import ArtifactError, BertlineError, ConfigError
from bertline.foundation.files import read_json
from bertline.foundation.mappings import differences
from bertline.foundation.validation import to_mapping
from bertline.orchestration.config import SECTIONS, PipelineConfig, pipeline_config
from bertline.orchestration.fingerprints import code_fingerprint
from bertline.orchestration.stages import CODE, Stage

PARAMS = Path("params.yaml")
_MOST_NAMED = 5


def present_config() -> PipelineConfig:
    """Return the configuration in params.yaml, which is what DVC will record.

    Raises:
        ConfigError: The file is missing or not valid.
    """
    if not PARAMS.exists():
        raise ConfigError(f"{PARAMS} is missing. Run `dvc repro configure`.")
    mapping: dict[str, Any] = yaml.safe_load(PARAMS.read_text(encoding="utf-8")) or {}
    return pipeline_config({key: mapping[key] for key in SECTIONS if key in mapping})


def tracked_sections(stage: Stage, task: str | None, config: PipelineConfig) -> dict[str, Any]:
    """Return the part of a configuration that a result depends on, `{"tasks.docs_library": {...}, "sweep": ...}`."""
    sections: dict[str, Any] = {}
    whole = to_mapping(config)
    for template in stage.sections:
        key = template.format(task=task)
        value: Any = whole
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        sections[key] = value
    return sections


def changed_sections(stage: Stage, task: str | None, frozen: Mapping[str, Any]) -> list[str]:
    """Return the keys of params.yaml whose value changed since a stage started, with both values, as text."""
    try:
        now = tracked_sections(stage, task, present_config())
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


def refuse_changes(
    name: str, *, sections: list[str], code: list[str], inputs: list[str], kept: Path | None = None
) -> None:
    """Fail if something changed; the error names what changed, where the result is kept, and what to do.

    Raises:
        ArtifactError: Something changed.
    """
    told = [("the configuration", sections), ("the code", code), ("what it reads", inputs)]
    words = [f"{title}: {shown(names)}" for title, names in told if names]
    if not words:
        return
    lies = "" if kept is None else f" Its result is kept in {kept}."
    take = "" if kept is None or code or inputs else " To take that result, set the configuration back first."
    raise ArtifactError(
        f"stage {name}: what it depends on changed since it started, so DVC would record it wrongly. "
        f"Changed: {'; '.join(words)}.{lies} Run `dvc repro` again: the stage runs with what is there now.{take}"
    )


def shown(names: list[str]) -> str:
    """Return the first names of a list, and how many more there are, as text."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
