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

from bertline.cli.choices import saved_choices
from bertline.cli.project import conf_folder, of_caller
from bertline.config import SECTIONS, PipelineConfig, how_to_register, pipeline_config
from bertline.foundation.errors import ConfigError

LOCAL = Path("conf/local/default.yaml")
"""Lasting choices, in the project's folder."""
_TASKS = re.compile(r"tasks=\[[^{}]*\]$")
_TASK_GROUP = "task@tasks."
_TEXTS = ("task_name", "name", "text", "pair", "reason")
"""Arguments whose value is text, whatever it looks like: a task may be called 2020, and a sentence has commas."""
_MANY_RUNS = ("-m", "--multirun")


def quoted_where_needed(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments with a value quoted where Hydra's grammar would not read it as it stands.

    Hydra reads brackets, commas, parentheses, quotes, equals signs and letters outside ASCII as grammar, or not at all.
    In a path they are part of the name. Lists, mappings, numbers and, with -m, sweeps keep their meaning; the name of a
    task is text, also one of digits. `tasks=[...]` chooses among the registered tasks.

    >>> quoted_where_needed(["corpus.path=/data/Übung (2), neu", "optimizer.lr=1e-3"])
    ["corpus.path='/data/Übung (2), neu'", 'optimizer.lr=1e-3']
    """
    if any(argument in _MANY_RUNS for argument in arguments):
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
    elif override is None:
        # What begins as a list, a mapping or a quoted text is one with an error in it, unless there is such a path.
        as_text = value[0] not in "[{'\"" or _is_path(value)
    elif override.is_sweep_override():
        as_text = "/" in value or _is_path(value)
    else:
        as_text = isinstance(override.value(), list | dict | str) and str(override.value()) != value and _is_path(value)
    if not as_text:
        return argument
    if value.startswith("~/"):
        value = str(Path(value).expanduser())
    quoted = f"{key}={QuotedString(value, Quote.single).with_quotes()}"
    return argument if _parsed(quoted) is None else quoted


def _parsed(argument: str) -> Override | None:
    try:
        return OverridesParser.create().parse_override(argument)
    except HydraException:
        return None


def _is_path(value: str) -> bool:
    try:
        return of_caller(value).exists()
    except (OSError, RuntimeError, ValueError):  # too long; an unknown home; a NUL
        return False


def with_saved_choices(message: str) -> str:
    """Return a message with the saved choices that it is about, unless it has them, and the command to unset them."""
    if not LOCAL.exists() or str(LOCAL) in message:
        return message
    content: Any = OmegaConf.to_container(OmegaConf.load(LOCAL))
    # Another option of a group may not have the section that was saved for the one before.
    unknown = [f"{name}." for name in re.findall(r"([\w.]+) is not a known key", message)]
    # A group has a short name (model), which may also be a folder of a path in the message, or a part of its name.
    named = [
        key
        for key in saved_choices(content)
        if re.search(rf"(?<![\w./-]){re.escape(key)}(?![\w.-]*\w)", message)
        or any(f"{key.rpartition('@')[2]}.".startswith(section) for section in unknown)
    ]
    if not named:
        return message
    unset = f"bertline configure --unset {' '.join(named)}"
    return f"{message}\n{', '.join(named)}: saved in {LOCAL}. If no longer wanted: {unset}"


_MOST = 3
# Keys of one section have much in common, so whole keys must be closer than difflib's 0.6.
_CLOSE = 0.8


def sections_of(config: str) -> set[str]:
    """Return the sections of the pipeline, and `task` if it is one, in a file in conf/; empty if it is not of them."""
    defaults: Any = OmegaConf.to_container(OmegaConf.load(conf_folder() / f"{config}.yaml")).get("defaults", [])  # type: ignore[union-attr]
    sections = {*SECTIONS} if config == "config" or "config" in defaults else set()
    return sections | {key for one in defaults if isinstance(one, dict) for key in one if key == "task"}


def arguments_of(config: str) -> list[str]:
    """Return the keys that a file in conf/ has besides its sections."""
    content: Any = OmegaConf.to_container(OmegaConf.load(conf_folder() / f"{config}.yaml"))
    return list(keys_of({key: value for key, value in content.items() if key not in ("defaults", "hydra")}))


def refuse_unread(overrides: Sequence[str], config: str, ignored: Collection[str] = ()) -> None:
    """Check that something reads each override: `+` adds any key, and a command ignores sections, all but one key."""
    own = arguments_of(config)
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
    """Return what a failed composition (ValueError: for a key inside a list) says about a key that does not exist; None
    if it failed for another reason."""
    if isinstance(error, OverrideParseException):
        return _how_to_quote(error)
    if isinstance(error, MissingConfigException) and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        meant = difflib.get_close_matches(name, error.options, n=1)
        did_you = f" Did you mean {meant[0]}?" if meant else ""
        return f"{group} has no {name}.{did_you} It has {', '.join(error.options)}."
    refused = re.match(r"Could not override '([^']+)'", str(error))
    if refused is None and not isinstance(error, ValueError) and "Error merging override" not in str(error):
        return None
    # Without the groups that were given, keys of the chosen members would be missing.
    keys = {one: one.partition("=")[0] for one in overrides}
    groups = [one for one, key in keys.items() if "@" in key or (conf_folder() / key).is_dir()]
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            composed: Any = OmegaConf.to_container(compose(config, overrides=groups))
    except (HydraException, OmegaConfBaseException):
        return None  # it is a group that was mistyped
    known = [key for key in keys_of(composed) if key.partition(".")[0] not in ignored]
    plain = [key for one, key in keys.items() if one not in groups and one[0] not in "+~"]
    unknown = refused[1] if refused else next((key for key in plain if key not in known), None)
    if unknown is None or unknown in known:
        return None
    return f"{unknown} is no key of the configuration.{suggestion(unknown, known)}"


def _how_to_quote(error: OverrideParseException) -> str:
    """Return what to write instead of an override whose value has characters that mean something to Hydra."""
    key, equals, value = error.override.partition("=")
    if (dotted := re.sub(r"\[(\d+)\]", r".\1", key)) != key:
        return f"{key} cannot be read: the number of a list's entry follows a dot: {dotted}{equals}{value}"
    quoted = value.strip("'\"").replace("'", "\\'")
    problem = f"{error.override} cannot be read: {error.message.splitlines()[0]}."
    if not equals:
        return f"{problem} An override is KEY=VALUE."
    return (
        f"{problem} A value with brackets, braces, parentheses, commas, colons or backslashes needs quotes inside "
        f"those of the shell: \"{key}='{quoted}'\""
    )


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
    if meant:
        shown = meant[:_MOST]
        return f" Did you mean {' or '.join([', '.join(shown[:-1]), shown[-1]] if shown[1:] else shown)}?"
    if siblings:
        return f" Keys of {section}: {', '.join(siblings)}."
    return f" Its sections: {', '.join(one for one in known if '.' not in one)}."


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
