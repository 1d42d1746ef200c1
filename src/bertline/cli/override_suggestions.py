"""Overrides that name no key: what was probably meant, instead of how to add a key that nothing reads."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bertline.cli.project import conf_folder
from bertline.config import SECTIONS
from bertline.foundation.errors import ConfigError

_MOST = 3
# Keys of one section have much in common, so whole keys must be closer than difflib's 0.6.
_CLOSE = 0.8
_VALUES = "true|false|null|error|skip|ignore|repair|plain|truncate|windows|linear|softmax"
_INDEX = re.compile(r"\[(\d+)\]")


def sections_of(config: str) -> set[str]:
    """Return the sections of the pipeline, and `task` if it is one, in a file in conf/; empty if it is not of them."""
    defaults: Any = OmegaConf.to_container(OmegaConf.load(conf_folder() / f"{config}.yaml")).get("defaults", [])  # type: ignore[union-attr]
    sections = {*SECTIONS} if config == "config" or "config" in defaults else set()
    return sections | {key for one in defaults if isinstance(one, dict) for key in one if key == "task"}


def arguments_of(config: str) -> list[str]:
    """Return the keys that a file in conf/ has besides its sections."""
    content: Any = OmegaConf.to_container(OmegaConf.load(conf_folder() / f"{config}.yaml"))
    return list(keys_of({key: value for key, value in content.items() if key not in ("defaults", "hydra")}))


def with_arguments(message: str, config: str) -> str:
    """Return a message with `KEY=VALUE`, as on the command line, where it says `KEY: VALUE` of an argument.

    Example:
        >>> with_arguments("too many fields (extra_fields: ignore reads the first)", "predict")
        'too many fields (extra_fields=ignore reads the first)'
    """
    keys = "|".join(arguments_of(config))
    return re.sub(rf"(?<![\w./-])({keys}): (?=(?:{_VALUES})\b)", r"\1=", message)


def refuse_unread(overrides: Sequence[str], config: str, ignored: Collection[str] = ()) -> None:
    """Check that something reads each override: `+` adds any key, and a command may ignore sections.

    Args:
        ignored: Sections that the command does not read, except for `pretrain.start_from`.

    Raises:
        ConfigError: Nothing reads one.
    """
    own = arguments_of(config)
    sections = sections_of(config)  # unknown keys of these are errors of their validation
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        key, text = override.key_or_group, override.input_line
        section = re.split(r"[./]", override.package or key)[0]
        if section in ignored and key != "pretrain.start_from":
            last = key.rpartition(".")[2]
            instead = f" Write {last}={text.partition('=')[2]}" if section == "tasks" and last in own else ""
            raise ConfigError(f"{text}: this command reads nothing of {section}.{instead or ' Leave it out.'}")
        is_read = section in sections or section == "hydra" or key in own or (conf_folder() / key).is_dir()
        if override.is_add() and not is_read:
            raise ConfigError(f"{text}: nothing reads {key}.{suggestion(key, [*own, *sorted(sections)])}")


def explain_failed_composition(
    error: Exception, overrides: Sequence[str], config: str, ignored: Collection[str] = ()
) -> str | None:
    """Return what a composition that failed says about a key that does not exist; None if it failed for another reason.

    Args:
        error: What Hydra raised; for a key inside a list a bare ValueError.
    """
    for one in overrides:
        key, equals, value = one.partition("=")
        if _INDEX.search(key):
            dotted = _INDEX.sub(r".\1", key)
            return f"{key} cannot be read: the number of a list's entry follows a dot: {dotted}{equals}{value}"
    if isinstance(error, OverrideParseException):
        return how_to_quote(error)
    refused = re.match(r"Could not override '([^']+)'", str(error))
    if refused is None and not isinstance(error, ValueError) and "Error merging override" not in str(error):
        return None
    # Without the groups that were given, keys of the chosen members would be missing.
    pairs = [(one, *one.partition("=")[::2]) for one in overrides]
    groups = [one for one, key, value in pairs if "," not in value and ("@" in key or (conf_folder() / key).is_dir())]
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            composed: Any = OmegaConf.to_container(compose(config, overrides=groups))
    except (HydraException, OmegaConfBaseException):
        return None  # it is a group that was mistyped
    of_list = next(filter(None, (of_list_entry(one, composed) for one in overrides)), None)
    if of_list is not None or refused is None:
        return of_list
    known = [key for key in keys_of(composed) if key.partition(".")[0] not in ignored]
    if refused[1] in known:
        return replaced(refused[1], overrides)
    return f"{refused[1]} is no key of the configuration.{suggestion(refused[1], known)}"


def how_to_quote(error: OverrideParseException) -> str:
    """Return what to write instead of an override whose value has characters that mean something to Hydra."""
    key, equals, value = error.override.partition("=")
    quoted = value.strip("'\"").replace("'", "\\'")
    problem = f"{error.override} cannot be read: {error.message.splitlines()[0]}."
    if not equals:
        return f"{problem} An override is KEY=VALUE."
    return (
        f"{problem} A value with brackets, braces, parentheses, commas, colons or backslashes needs quotes inside "
        f"those of the shell: \"{key}='{quoted}'\""
    )


def of_list_entry(override: str, composed: Mapping[str, Any]) -> str | None:
    """Return what to write instead of an override whose key leads into a list, but names none of its entries.

    Example:
        >>> of_list_entry("pretrain.phases.steps=3", {"pretrain": {"phases": [{"steps": 9}]}})
        'pretrain.phases is a list of 1. Entries have numbers, from 0: pretrain.phases.0.steps=3'
        >>> of_list_entry("pretrain.phases.0.steps=3", {"pretrain": {"phases": [{"steps": 9}]}})
    """
    key, _, value = override.partition("=")
    parts = key.split(".")
    node: Any = composed
    for place, part in enumerate(parts):
        if isinstance(node, list) and not (part.isdigit() and int(part) < len(node)):
            path = ".".join(parts[:place])
            rest = parts[place:] if not part.isdigit() else parts[place + 1 :]
            example = f"{'.'.join([path, '0', *rest])}={value}" if node else f"{path}=[...]"
            return f"{path} is a list of {len(node)}. Entries have numbers, from 0: {example}"
        try:
            node = node[int(part)] if isinstance(node, list) else node[part]
        except (KeyError, TypeError):
            return None
    return None


def replaced(section: str, overrides: Sequence[str]) -> str:
    """Return how to replace a section by another with other keys, which a plain override would be merged into.

    Example:
        >>> replaced("space.lr", ["space.lr={kind: choice}"])
        "space.lr does not have all of these keys. To replace it: '~space.lr' '+space.lr={kind: choice}'"
    """
    value = next((value for key, _, value in (one.partition("=") for one in overrides) if key == section), "{...}")
    return f"{section} does not have all of these keys. To replace it: '~{section}' '+{section}={value}'"


def suggestion(key: str, known: Sequence[str]) -> str:
    """Return a sentence that names the keys that were probably meant, or those of the section.

    Example:
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
