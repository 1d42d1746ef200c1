"""What a stage reads of the pipeline: the artifacts, checked by hand against dvc.lock, as DVC would not read others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from bertline.config import PipelineConfig, each_section, sections_in
from bertline.foundation.errors import ArtifactError, BertlineError, ConfigError
from bertline.foundation.mappings import differences, value_at
from bertline.foundation.validation import to_mapping
from bertline.run.identity import digests_of_inputs
from bertline.run.provenance import locked_stages, md5_of_path, running_under_dvc
from bertline.stages.base import ENCODERS, Stage
from bertline.stages.pipeline import OF_PRETRAINING
from bertline.stages.registry import stage_named, stages_of
from bertline.stages.sweep import uses_pretrained

PARAMS = Path("params.yaml")


def named_inputs(composed: Mapping[str, Any]) -> dict[str, Path]:
    """Return the folders that `inputs.NAME=FOLDER` names."""
    folders = {name: Path(folder) for name, folder in (composed.get("inputs") or {}).items() if folder is not None}
    for name, folder in folders.items():
        if running_under_dvc():
            raise ConfigError(f"inputs.{name} is for stages that are run by hand; DVC knows those of dvc.yaml only.")
        if not folder.is_dir():
            raise ArtifactError(f"inputs.{name} is {folder}, which is no folder.")
    return folders


def inputs_of_stage(
    stage: Stage, task: str | None, config: PipelineConfig, places: Mapping[str, Path]
) -> dict[str, Path]:
    """Return the folders of the artifacts that a stage reads, by name; `places` stand for those in artifacts/."""
    inputs: dict[str, Path] = {}
    for path in _artifacts_read(stage, task, config):
        name = path.name if path.name != task else path.parent.name  # `tasks` of artifacts/tasks/TASK
        if name in OF_PRETRAINING and not config.pretrains:
            continue
        if name not in places and not path.exists():
            raise ArtifactError(f"{path} is missing: stage {stage.name} reads it. Run `dvc repro {stage.name}`.")
        if name not in places and not running_under_dvc():
            _refuse_other_configuration(name, path, config)
            _refuse_other_content(name, path, Path(config.runtime.runs_folder))
        inputs[name] = places.get(name, path)
    return inputs


def _artifacts_read(stage: Stage, task: str | None, config: PipelineConfig) -> Iterator[Path]:
    """Yield the artifacts that a stage reads; where DVC sees a pointer of `encoders`, the encoder itself."""
    for path in map(Path, stage.inputs_of(task)):
        if path.parent != ENCODERS:
            yield path
        elif uses_pretrained(config.tasks[str(task)].start_from):
            yield stage_named("pretrain").output_of(None)


def _refuse_other_configuration(name: str, artifact: Path, config: PipelineConfig) -> None:
    """Check by dvc.lock that an artifact, and those that it was made of, were made under this configuration."""
    lock = locked_stages()
    waiting, changed = [artifact], dict[str, tuple[Any, Any]]()
    while waiting:
        path = waiting.pop()
        for stage, task in stages_of(config):
            output = stage.output_of(task)
            if path not in (output, *([output.parent] if stage.per_task else [])):
                continue
            waiting += _artifacts_read(stage, task, config)
            made_under = lock.get(stage.full_name(task), {}).get("params", {}).get("params.yaml")
            if made_under is not None:
                changed |= differences(_with_defaults(made_under, config), tracked_sections(stage, task, config))
    if changed:
        keys = ", ".join(f"{key} ({old!r} there, {new!r} here)" for key, (old, new) in sorted(changed.items())[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise ArtifactError(
            f"{artifact} was made under another configuration: {keys}{more}. Leave these keys as they are, or save "
            f"them and run `dvc repro`, or name a folder that was made under them: inputs.{name}=FOLDER"
        )


def _refuse_other_content(name: str, artifact: Path, runs_folder: Path) -> None:
    """Check by dvc.lock that nothing changed an artifact since DVC recorded it: a stage under DVC would not read it."""
    for output in (output for stage in locked_stages().values() for output in stage.get("outs", [])):
        path = Path(output["path"])
        if "md5" not in output or not path.exists() or artifact not in (path, *path.parents):
            continue
        md5 = digests_of_inputs({"": path}, runs_folder, md5_of_path)[""]
        if md5 != output["md5"]:
            raise ArtifactError(
                f"{path} was changed or damaged since it was made: its MD5 is {md5}, and dvc.lock records "
                f"{output['md5']}. Restore it (`dvc checkout --force {path}`) or make it again (`dvc repro`); to "
                f"read it as it is, name it: inputs.{name}={artifact}"
            )


def _with_defaults(made_under: Mapping[str, Any], config: PipelineConfig) -> dict[str, Any]:
    """Return sections of dvc.lock with the defaults of keys that no YAML names; invalid ones as they are."""
    whole = to_mapping(config)
    for key, value in made_under.items():
        section, _, name = key.partition(".")
        whole[section] = {**whole[section], name: value} if name else value
    try:
        checked = to_mapping(each_section(whole))
    except ConfigError:
        return dict(made_under)
    return {key: value_at(checked, key) for key in made_under}


def tracked_sections(stage: Stage, task: str | None, config: PipelineConfig) -> dict[str, Any]:
    """Return the part of a configuration that a result depends on, `{"tasks.docs_library": {...}, "sweep": ...}`."""
    whole = to_mapping(config)
    return {key: value_at(whole, key) for key in (template.format(task=task) for template in stage.sections)}


def changed_sections(stage: Stage, task: str | None, frozen: Mapping[str, Any]) -> list[str]:
    """Return the keys of params.yaml whose value changed since a stage started, with both values, as text."""
    try:
        present = sections_in(yaml.safe_load(PARAMS.read_text(encoding="utf-8")) or {})
        now = tracked_sections(stage, task, present)
    except (OSError, BertlineError) as error:
        return [f"{PARAMS} ({error})"]
    return [f"{key} (was {old!r}, is {new!r})" for key, (old, new) in differences(dict(frozen), now).items()]
