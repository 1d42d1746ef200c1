"""configure: compose and check conf/ for all stages, before anything expensive starts (params.yaml)."""

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from bertline.cli.choices import choices_at_stake, described, header, lasting_choices
from bertline.cli.composition import explaining, loaded, plain_content
from bertline.cli.inputs import check_start
from bertline.cli.overrides import LOCAL, quoted_where_needed, refuse_unread, refuse_unused, with_saved_choices
from bertline.config import SECTIONS, PipelineConfig, each_section, how_to_register, pipeline_config
from bertline.foundation.errors import BertlineError, ConfigError
from bertline.foundation.files import write_atomically, write_json
from bertline.foundation.mappings import ABSENT, differences, value_at
from bertline.foundation.progress import say
from bertline.run.identity import WATCHED, data_of, require_data, require_watchable
from bertline.run.inputs import PARAMS
from bertline.run.stage import watched_of
from bertline.stages.registry import stages_of
from bertline.tasks.treebank import read_treebank
from bertline.tracking.config import masked
from bertline.tracking.secrets import refuse_secrets_of_dvc

# All in the folder of the project.
ONLY_BY_HAND = ("task_name", "inputs")
"""Keys of conf/config.yaml that no stage of DVC is given."""
CONF = Path("conf")


def configure(arguments: list[str]) -> None:
    """Compose and check conf/ for all stages, before anything expensive starts.

    bertline configure                             compose and write params.yaml, as `dvc repro` does
    bertline configure model=small                 check and show what would change; write nothing
    bertline configure model=small --save          a lasting choice, kept in conf/local/default.yaml
    bertline configure --keep | --drop             keep, or drop, what an experiment set

    A lasting choice is taken back in that file.
    """
    try:
        _configure(arguments)
    except ConfigError as error:
        raise ConfigError(with_saved_choices(str(error))) from error


def _configure(arguments: list[str]) -> None:
    flags = {argument for argument in arguments if argument.startswith("--")}
    overrides = quoted_where_needed([argument for argument in arguments if argument not in flags])
    if unknown := flags - {"--save", "--keep", "--drop"}:
        raise ConfigError(f"unknown option {', '.join(sorted(unknown))}; known: --save, --keep, --drop")
    if len(flags) > 1 or (overrides and flags & {"--keep", "--drop"}):
        raise ConfigError(f"{' '.join(arguments)} asks for several things at once; --keep and --drop stand alone")
    if "--keep" in flags:
        keep({key: present for key, (present, _) in _at_stake(composed([])).items()})
    elif "--save" in flags:
        save(*parsed(overrides))
    elif overrides:
        show(overrides)
    elif "DVC_EXP_NAME" in os.environ:
        # `dvc exp run` has just composed params.yaml itself, with its -S overrides on top of conf/.
        present = _present()
        write_atomically(PARAMS, masked(PARAMS.read_text(encoding="utf-8")))  # git tracks it
        write_params(present, {key: new for key, (_, new) in differences(composed([]), present).items()})
    else:
        mapping = composed([])
        if "--drop" not in flags:
            refuse_to_undo(mapping)
        before = PARAMS.read_bytes() if PARAMS.exists() else b""
        write_params(mapping)
        say(f"valid; {PARAMS} is {'as it was' if PARAMS.read_bytes() == before else 'written'}")


def composed(overrides: list[str]) -> dict[str, Any]:
    """Return the configuration composed from conf/, including lasting choices."""
    with explaining(overrides), initialize_config_dir(str(CONF.resolve()), version_base="1.3"):
        mapping = plain_content(compose("config", overrides=overrides))
    return {key: mapping[key] for key in mapping if key not in ONLY_BY_HAND}


def write_params(mapping: dict[str, Any], set_by_experiment: Mapping[str, Any] | None = None) -> None:
    """Validate, and write params.yaml and what DVC is to watch for each stage."""
    refuse_secrets_of_dvc()
    config = checked(mapping)
    # Any of them, since another `sweep=` changes more than what it is chosen for.
    refuse_unused(mapping, set_by_experiment or {}, each=False)
    if "DVC_STAGE" in os.environ and sorted(listed := [*_present()["tasks"]]) != sorted(config.tasks):
        raise ConfigError(  # DVC has read dvc.yaml by now
            f"{PARAMS} has the tasks {listed}, of which DVC makes stages, but the configuration has {[*config.tasks]}. "
            "Run `bertline configure`, which writes it, and start again."
            + "".join(how_to_register(name) for name in sorted({*listed} - {*config.tasks}))
        )
    check_data(config)
    check_start(config)
    for folder in ("artifacts/tasks", "artifacts/sweep"):  # DVC dependencies even without tasks
        Path(folder).mkdir(parents=True, exist_ok=True)
    set_by_experiment = set_by_experiment or {}
    content = {"task_name": None, **{section: mapping[section] for section in SECTIONS}}
    write_atomically(PARAMS, header(mapping, set_by_experiment) + OmegaConf.to_yaml(OmegaConf.create(content)))
    watched = {stage.full_name(task): watched_of(stage, task, config) for stage, task in stages_of(config)}
    write_json(WATCHED, watched)
    for key, value in set_by_experiment.items():
        say(f"set by this experiment: {key}={value}")


def keep(chosen: Mapping[str, Any]) -> None:
    """Write what an experiment chose as lasting choices."""
    if left_out := [key for key, value in chosen.items() if value == ABSENT]:
        raise ConfigError(
            f"{', '.join(left_out)}: to leave a key out is no lasting choice. Drop what the experiment set "
            "(--drop), then give what it was given with -S: bertline configure KEY=VALUE --save"
        )
    save({}, dict(chosen))


def save(groups: dict[str, str | None], values: dict[str, Any]) -> None:
    """Write lasting choices and the params.yaml that results; if it is not valid, nothing changes."""
    before = LOCAL.read_text(encoding="utf-8") if LOCAL.exists() else None
    saved: Any = {} if before is None else OmegaConf.to_container(loaded(LOCAL))
    content = OmegaConf.to_yaml(OmegaConf.create(lasting_choices(saved, groups, values)))
    write_atomically(LOCAL, f"# @package _global_\n# Lasting choices (bertline configure ... --save)\n{content}")
    try:
        mapping = composed([])
        refuse_to_undo(mapping, just_saved={*values})
        write_params(mapping)
    except (BertlineError, KeyboardInterrupt):
        if before is None:
            LOCAL.unlink()
        else:
            write_atomically(LOCAL, before)
        raise
    say(f"saved in {LOCAL}: " + ", ".join(f"{k}={v}" for k, v in {**groups, **values}.items()))


def show(overrides: list[str]) -> None:
    """Check overrides and print what they would change, without writing anything."""
    new = composed(overrides)
    config = checked(new)
    refuse_unused(new, overrides)
    check_data(config)
    check_start(config)
    changes = differences(composed([]), new)
    say("\n".join(["valid; it would change", *described(changes)]) if changes else "valid; it changes nothing")
    experiment = "Or use: dvc exp run " + " ".join(f"-S {shlex.quote(o)}" for o in overrides)
    say(f"Nothing was written. Add --save to keep it. {experiment}")


def refuse_to_undo(mapping: dict[str, Any], just_saved: set[str] | None = None) -> None:
    """Raise ConfigError if writing the composition would undo what an experiment or an edit of params.yaml has set."""
    at_stake = {key: values for key, values in _at_stake(mapping).items() if key not in (just_saved or set())}
    if at_stake:
        raise ConfigError(
            "params.yaml holds choices that are not in conf/ (an experiment set them, or it was edited):\n"
            + "\n".join(described(at_stake))
            + "\nTo keep them for good:  bertline configure --keep"
            + "\nTo drop them:           bertline configure --drop"
            + "\nThen run the same command again."
        )


def parsed(overrides: list[str]) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Split overrides into config group choices and values."""
    if not overrides:
        raise ConfigError("--save needs something to save, for example: bertline configure model=small --save")
    content = composed(overrides)  # unknown groups and keys fail here, before anything is written
    refuse_unread(overrides, "config")
    refuse_unused(content, overrides)
    groups: dict[str, str | None] = {}
    values: dict[str, Any] = {}
    for override in OverridesParser.create().parse_overrides(overrides):
        key, element = override.key_or_group, override.get_key_element()
        if override.is_delete() and key == "task":
            groups[element.lstrip("~")] = None
        elif override.is_sweep_override() or override.is_delete():
            raise ConfigError(f"{override.input_line} cannot be a lasting choice; edit its file in conf/ instead.")
        elif entry := re.match(r"(.*?)\.\d+(\.|$)", key):
            # As Hydra reads it, without quotes around keys.
            whole = re.sub(r'"(\w+)":', r"\1:", json.dumps(value_at(content, entry[1]), ensure_ascii=False))
            raise ConfigError(
                f"{override.input_line} changes an entry of a list, which cannot be saved alone. Give the whole list: "
                + shlex.quote(f"{entry[1]}={whole}")
            )
        elif (CONF / key).is_dir() or override.package is not None:
            groups[element] = str(override.value())
        else:
            values[key] = override.value()
    return groups, values


def checked(mapping: Mapping[str, Any]) -> PipelineConfig:
    """Validate a composed configuration; data that does not exist is named before what would follow from it."""
    try:
        return pipeline_config(mapping)
    except ConfigError:
        check_data(each_section(mapping))
        raise


def check_data(config: PipelineConfig) -> None:
    """Check that all data of the user's that the stages read is there, and can be watched."""
    for stage, task in stages_of(config):
        for key, path in data_of(stage, task, config).items():
            require_data(key, path)
            require_watchable(key, path)
    probe = config.pretrain.head_probe
    if probe is not None:
        read_treebank(Path(probe.treebank).expanduser())  # pretraining would find out after the stages before it


def _present() -> dict[str, Any]:
    present: Any = OmegaConf.to_container(loaded(PARAMS), resolve=True)
    return {key: value for key, value in present.items() if key not in ONLY_BY_HAND}


def _at_stake(mapping: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    if not PARAMS.exists():
        return {}
    return choices_at_stake(PARAMS.read_text(encoding="utf-8"), _present(), mapping)
