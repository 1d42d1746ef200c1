"""Overrides as people write them: values with any characters, and saved choices that no longer fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import OmegaConf

from bertline.cli.choices import saved_choices
from bertline.cli.project import conf_folder, of_caller
from bertline.config import how_to_register
from bertline.foundation.errors import ConfigError

LOCAL = Path("conf/local/default.yaml")
"""Lasting choices, in the project's folder."""
_TASKS = re.compile(r"tasks=\[[^{}]*\]$")
_TASK_GROUP = "task@tasks."
_NAMES = ("task_name", "name")
_MANY_RUNS = ("-m", "--multirun")


def quoted_where_needed(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments with a value quoted where Hydra's grammar would not read it as it stands.

    Hydra reads brackets, commas, parentheses, quotes, equals signs and letters outside ASCII as grammar, or not at all.
    In a path they are part of the name. Lists, mappings, numbers and, with -m, sweeps keep their meaning; the name of a
    task is text, also one of digits. `tasks=[...]` chooses among the registered tasks.

    Raises:
        ConfigError: `tasks=[...]` names a task that is not registered.

    Example:
        >>> quoted_where_needed(["corpus.path=/data/Übung (2), neu", "optimizer.lr=1e-3"])
        ["corpus.path='/data/Übung (2), neu'", 'optimizer.lr=1e-3']
    """
    if any(argument in _MANY_RUNS for argument in arguments):
        return list(arguments)
    return [
        word
        for argument in arguments
        for word in (_of_tasks(argument) if _TASKS.match(argument) else [_quoted(argument)])
    ]


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
    if override is None:
        # What begins as a list, a mapping or a quoted text is one with an error in it, unless there is such a path.
        as_text = value[0] not in "[{'\"" or _is_path(value)
    elif override.is_sweep_override():
        as_text = "/" in value or _is_path(value)
    elif key in _NAMES:
        as_text = isinstance(override.value(), int | float)  # a task may be called 2020, or 1e5
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
    """Return a message with the saved choices that it is about, and the command that unsets them."""
    if not LOCAL.exists():
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
