"""Overrides that name no key: what was probably meant, instead of how to add a key that nothing reads."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

CONF = Path(__file__).resolve().parent.parent / "conf"
_MOST = 3
# Keys of one section have much in common, so whole keys must be closer than difflib's 0.6.
_CLOSE = 0.8
_SOURCE = re.compile(r"\+*source@corpus\.sources\.")
_INDEX = re.compile(r"\[(\d+)\]")


def mistyped(error: Exception, overrides: Sequence[str], config: str) -> str | None:
    """Return what a composition that failed says about a key that does not exist; None if it failed for another reason.

    Args:
        error: What Hydra raised; for a key inside a list a bare ValueError.
        overrides: The overrides that were given.
        config: Name of the composed file in conf/.
    """
    for one in overrides:
        key, equals, value = one.partition("=")
        if _INDEX.search(key):
            dotted = _INDEX.sub(r".\1", key)
            return f"{key} cannot be read: the number of a list's entry follows a dot: {dotted}{equals}{value}"
        if value == "python_docs" and _SOURCE.match(key):
            return (
                f"{one} cannot be read: the documentation of Python packages (corpus=python_docs) is a corpus of its "
                f"own, with a split of its own, and no source among several. Sources: {', '.join(_sources())}."
            )
    if isinstance(error, OverrideParseException):
        return unreadable(error)
    found = re.match(r"Could not override '([^']+)'", str(error))
    if found is None and not isinstance(error, ValueError) and "Error merging override" not in str(error):
        return None
    # Without the groups that were given, keys of the chosen members would be missing.
    groups = [one for one in overrides if _chooses_member(one)]
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            composed: Any = OmegaConf.to_container(compose(config, overrides=groups))
    except (HydraException, OmegaConfBaseException):
        return None  # it is a group that was mistyped
    of_list = next(filter(None, (of_list_entry(one, composed) for one in overrides)), None)
    if of_list is not None or found is None:
        return of_list
    known = list(keys_of(composed))
    if found[1] in known:
        return replaced(found[1], overrides)
    return f"{found[1]} is no key of the configuration.{suggestion(found[1], known)}"


def unreadable(error: OverrideParseException) -> str:
    """Return what to write instead of an override whose value has characters that mean something to Hydra."""
    key, equals, value = error.override.partition("=")
    quoted = value.strip("'\"").replace("'", "\\'")
    said = f"{error.override} cannot be read: {error.message.splitlines()[0]}."
    if not equals:
        return f"{said} An override is KEY=VALUE."
    return (
        f"{said} A value with brackets, braces, parentheses, commas, colons or backslashes needs quotes inside those "
        f"of the shell: \"{key}='{quoted}'\""
    )


def _sources() -> list[str]:
    return sorted(path.stem for path in (CONF / "source").glob("*.yaml"))


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


def _chooses_member(override: str) -> bool:
    key, _, value = override.partition("=")
    return "," not in value and ("@" in key or (CONF / key).is_dir())
