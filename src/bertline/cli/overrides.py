"""Overrides as people write them: values with any characters, and what was meant by those that name no key."""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bertline.cli.project import conf_folder
from bertline.config import SECTIONS, PipelineConfig, how_to_register, pipeline_config
from bertline.foundation.errors import ConfigError

LOCAL = Path("conf/local/default.yaml")
"""Lasting choices, in the project's folder."""
_TASKS = re.compile(r"tasks=\[[^{}]*\]$")
_TASK_GROUP = "task@tasks."
_TEXTS = ("task_name", "name", "text", "pair", "reason")
"""Arguments whose value is text, whatever it looks like: a task may be called 2020, and a sentence has commas."""


def quoted_where_needed(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments with a value quoted where Hydra's grammar would not read it as it stands.

    Hydra reads brackets, commas, parentheses, quotes, equals signs and letters outside ASCII as grammar, or not at all.
    In a path they are part of the name. Lists, mappings, numbers and, with -m, sweeps keep their meaning; the name of a
    task is text, also one of digits. `tasks=[...]` chooses among the registered tasks.

    >>> quoted_where_needed(["corpus.path=/data/Übung (2), neu", "optimizer.lr=1e-3"])
    ["corpus.path='/data/Übung (2), neu'", 'optimizer.lr=1e-3']
    """
    if any(argument in ("-m", "--multirun") for argument in arguments):
        return list(arguments)
    words = (_of_tasks(argument) if _TASKS.match(argument) else [_quoted(argument)] for argument in arguments)
    return list(chain.from_iterable(words))


def registered_tasks() -> dict[str, str]:
    """Return the file of conf/task of each task in the defaults of conf/config.yaml."""
    defaults: Any = OmegaConf.to_container(OmegaConf.load(conf_folder() / "config.yaml"))
    return {
        key.removeprefix(_TASK_GROUP): option
        for item in defaults["defaults"]
        if isinstance(item, dict)
        for key, option in item.items()
        if key.startswith(_TASK_GROUP)
    }


def _of_tasks(argument: str) -> list[str]:
    """Return the overrides of the groups `task@tasks.NAME` for `tasks=[NAME, ...]`."""
    override = _parsed(argument)
    wanted = [str(name) for name in override.value()] if override is not None else []  # type: ignore[union-attr]
    registered = registered_tasks()
    for name in wanted:
        if name not in registered:
            known = ", ".join(registered) or "none"
            raise ConfigError(f"{argument}: {name} is not a registered task ({known}).{how_to_register(name)}")
    return [
        f"{_TASK_GROUP}{name}={option}" if name in wanted else f"~{_TASK_GROUP}{name}"
        for name, option in registered.items()
    ]


def _quoted(argument: str) -> str:
    key, equals, value = argument.partition("=")
    if not equals or not value or argument.startswith("-"):
        return argument
    override = _parsed(argument)
    if key in _TEXTS:
        as_text = value != "null" and value[0] not in "'\""
    else:
        # What begins as a list, a mapping or a quoted text is one with an error in it.
        is_sweep = override is not None and override.is_sweep_override() and "/" in value
        as_text = is_sweep or (override is None and value[0] not in "[{'\"")
    return f"{key}={QuotedString(value, Quote.single).with_quotes()}" if as_text else argument


def _parsed(argument: str) -> Override | None:
    try:
        return OverridesParser.create().parse_override(argument)
    except HydraException:
        return None


def with_saved_choices(message: str) -> str:
    """Return a message with the file of lasting choices, if there is one: what is wrong may stand there."""
    if not LOCAL.exists() or str(LOCAL) in message:
        return message
    return f"{message}\nLasting choices are in {LOCAL}: edit or delete it to take them back."


# Keys of one section have much in common, so whole keys must be closer than difflib's 0.6.
_CLOSE = 0.8


def sections_of(config: str) -> set[str]:
    """Return the sections of the pipeline, and `task` if it is one, in a file in conf/; empty if it is not of them."""
    defaults: Any = OmegaConf.to_container(OmegaConf.load(conf_folder() / f"{config}.yaml")).get("defaults", [])  # type: ignore[union-attr]
    sections = {*SECTIONS} if config == "config" or "config" in defaults else set()
    return sections | {key for one in defaults if isinstance(one, dict) for key in one if key == "task"}


def refuse_unread(overrides: Sequence[str], config: str, ignored: Collection[str] = ()) -> None:
    """Check that something reads each override: `+` adds any key, and a command ignores sections, all but one key."""
    content: Any = OmegaConf.to_container(OmegaConf.load(conf_folder() / f"{config}.yaml"))
    own = list(keys_of({key: value for key, value in content.items() if key not in ("defaults", "hydra")}))
    sections = sections_of(config)  # unknown keys of these are errors of their validation
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        key, text = override.key_or_group, override.input_line
        section = re.split(r"[./]", override.package or key)[0]
        if section in ignored and key != "pretrain.start_from":
            raise ConfigError(f"{text}: this command reads nothing of {section}. Leave it out.")
        is_read = section in sections or section == "hydra" or key in own or (conf_folder() / key).is_dir()
        if override.is_add() and not is_read:
            raise ConfigError(f"{text}: nothing reads {key}.{suggestion(key, [*own, *sorted(sections)])}")


_SEARCH = re.compile(r"(?:sweep|tasks\.([^.]+))\.(?:(space|fine_tuning)\.([^.]+)|num_trials$)")


def refuse_unused(composed: Mapping[str, Any], overrides: Iterable[str], *, each: bool = True) -> None:
    """Check that of the overrides, or keys, of the search each (or any) decides something for a task, or `task_name`.

    What comes first decides: a task's own space (with `sweep.task_spaces`), what the task fixes, `sweep.space`,
    `sweep.fine_tuning`. What is taken out leaves the decision to those that follow.
    """
    pairs = [(key.lstrip("+~"), value) for key, _, value in (one.partition("=") for one in overrides)]
    inner = [f"{key}.{name}" for key, value in pairs for name in re.findall(r"(\w+):", value)]
    if matches := [match for key in [*dict(pairs), *inner] if (match := _SEARCH.match(key))]:
        config = pipeline_config({section: composed[section] for section in SECTIONS})
        reasons = {match.string: _why_unused(config, match, composed.get("task_name")) for match in matches}
        unused = [f"{key} has no effect: {why}" for key, why in reasons.items() if why]
        if unused and (each or len(unused) == len(reasons)):
            raise ConfigError(unused[0])


def _why_unused(config: PipelineConfig, key: re.Match[str], task_name: str | None) -> str:
    sweep, (name, section, field) = config.sweep, key.groups()
    tasks = {one: task for one, task in config.tasks.items() if one == (name or task_name or one)}
    if name and section == "space" and not sweep.task_spaces:
        return f"sweep.space is searched for every task. Set sweep.space.{field}, or sweep.task_spaces=true."
    if not section and not any(map(sweep.searched, tasks.values())):
        return "nothing is searched (sweep.space is empty). Choose a search, such as sweep=tpe_halving."
    deciding = [sweep.deciding(one, task, field) for one, task in tasks.items() if section]
    first = [place for place in deciding if _rank(place) < _rank(key[0])]
    if not section and not name:
        first = [f"tasks.{one}.num_trials" for one, task in tasks.items() if task.num_trials]
    if len(first) < len(tasks) or not tasks:
        return ""
    remedy = ", or sweep.task_spaces=false, to search sweep.space for every task" if ".space." in first[0] else ""
    return f"what comes first is {', '.join(first)}. Set that{remedy}."


def _rank(key: str) -> tuple[bool, bool]:
    return key.startswith("sweep."), ".fine_tuning." in key


def explain_failed_composition(
    error: Exception, overrides: Sequence[str], config: str, ignored: Collection[str] = ()
) -> str | None:
    """Return what a failed composition says about a choice or a key that does not exist; None if it failed for another
    reason."""
    if isinstance(error, OverrideParseException):
        problem = f"{error.override} cannot be read: {error.message.splitlines()[0]}"
        key, equals, value = error.override.replace("'", "").partition("=")
        if not equals:
            return f"{problem}. An override is KEY=VALUE."
        if (dotted := re.sub(r"\[(\d+)\]", r".\1", key)) != key:
            return f"{key} cannot be read: the number of a list's entry follows a dot: {dotted}={value}"
        return f"{problem}. A value with such characters needs quotes inside those of the shell: \"KEY='VALUE'\""
    if isinstance(error, MissingConfigException) and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return f"{group} has no {name}.{_did_you_mean(difflib.get_close_matches(name, error.options, n=1))} It has " + (
            f"{', '.join(error.options)}."
        )
    keys = {one: one.partition("=")[0] for one in overrides if not one.startswith("-")}
    # Without the groups that were given, keys of the chosen members would be missing.
    groups = [one for one, key in keys.items() if "@" in key or (conf_folder() / key).is_dir()]
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            composed: Any = OmegaConf.to_container(compose(config, overrides=groups))
    except (HydraException, OmegaConfBaseException):
        return None  # it is a group that was mistyped
    known = [key for key in keys_of(composed) if key.partition(".")[0] not in ignored]
    unknown = (key for one, key in keys.items() if one not in groups and one[0] not in "+~" and key not in known)
    key = next(unknown, None)
    return None if key is None else f"{key} is no key of the configuration.{suggestion(key, known)}"


def suggestion(key: str, known: Sequence[str]) -> str:
    """Return a sentence that names the keys that were probably meant, or those of the section.

    >>> suggestion("optimizer.lrr", ["optimizer", "optimizer.lr", "pretrain", "pretrain.seed", "sweep.seed"])
    ' Did you mean optimizer.lr?'
    >>> suggestion("seed", ["optimizer", "optimizer.lr", "pretrain", "pretrain.seed", "sweep.seed"])
    ' Did you mean pretrain.seed or sweep.seed?'
    """
    section, _, name = key.rpartition(".")
    siblings = {one.rpartition(".")[2]: one for one in known if section and one.rpartition(".")[0] == section}
    meant = (
        [siblings[one] for one in difflib.get_close_matches(name, siblings)]
        or [one for one in known if one.rpartition(".")[2] == name]
        or difflib.get_close_matches(key, known, cutoff=_CLOSE)
    )
    if not meant and siblings:
        return f" Keys of {section}: {', '.join(siblings)}."
    return _did_you_mean(meant[:3])


def _did_you_mean(meant: Sequence[str]) -> str:
    return f" Did you mean {' or '.join(meant)}?" if meant else ""


def keys_of(section: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the keys of a configuration, those of sections included, with dots."""
    for key, value in section.items():
        yield f"{above}{key}"
        if isinstance(value, Mapping):
            yield from keys_of(value, f"{above}{key}.")
        elif isinstance(value, list):
            for number, entry in enumerate(value):
                if isinstance(entry, Mapping):
                    yield from keys_of(entry, f"{above}{key}.{number}.")
