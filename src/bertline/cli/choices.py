"""Choices: values that a person or an experiment set, and that plain composition of `conf/` would not give.

The header of `params.yaml` lists the keys that an experiment set, and contains a digest of the content, so that neither
an experiment's choice nor a manual edit is undone silently.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bertline.foundation.errors import ConfigError
from bertline.foundation.mappings import differences

_DIGEST = "# content: "
_CHOICE = "# set by an experiment: "


def header(mapping: Mapping[str, Any], set_by_experiment: Mapping[str, Any]) -> str:
    """Return the comment lines above the content of params.yaml."""
    lines = ["# Composed from conf/ by `configure`; edit conf/ (docs/howto/settings.md)."]
    lines += [f"{_CHOICE}{key}={json.dumps(value)}" for key, value in set_by_experiment.items()]
    return "\n".join([*lines, f"{_DIGEST}{config_digest(mapping)}"]) + "\n"


def choices_at_stake(text: str, present: Mapping[str, Any], composed: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the keys that writing `composed` over the present params.yaml would undo: `{key: (present, composed)}`.

    These are the differing keys that an experiment set, according to the header. If the content is not what `configure`
    wrote (it was edited, or composed by DVC just before a kill), these are all differing keys.
    """
    changed = differences(present, composed)
    if f"{_DIGEST}{config_digest(present)}" not in text:
        return changed
    chosen = {line.removeprefix(_CHOICE).split("=", 1)[0] for line in text.splitlines() if line.startswith(_CHOICE)}
    return {key: values for key, values in changed.items() if key in chosen}


def config_digest(mapping: Mapping[str, Any]) -> str:
    """Return a digest of configuration content, independent of its formatting."""
    return hashlib.sha256(json.dumps(mapping, sort_keys=True).encode()).hexdigest()[:16]


def lasting_choices(
    saved: Mapping[str, Any], groups: Mapping[str, str | None], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge new choices into the content of conf/local/default.yaml; the newer choice of a key wins.

    Another option of a group drops what was saved inside it for the one before: values, and groups such as the sources
    of `corpus=sources`.

    Args:
        groups: Config group to option (`{"model": "small"}`); None leaves the group out. A group that the defaults do
            not have begins with `+`.

    Example:
        >>> lasting_choices({}, {"model": "small"}, {"optimizer.lr": 0.001})
        {'defaults': [{'override /model': 'small'}, '_self_'], 'optimizer': {'lr': 0.001}}
    """
    kept = {
        key: option for item in saved.get("defaults", []) if isinstance(item, Mapping) for key, option in item.items()
    }
    for inside in [f"@{_section_of(group)}." for group in groups]:
        kept = {key: option for key, option in kept.items() if inside not in key}
    for group, option in groups.items():
        added = f"/{group.removeprefix('+')}"
        kept[added if group.startswith("+") or added in kept else f"override {added}"] = option
    # Hydra wants what overrides at the end.
    ordered = sorted(kept, key=lambda key: key.startswith("override"))
    result: dict[str, Any] = {"defaults": [{key: kept[key]} for key in ordered] + ["_self_"]}
    result.update(json.loads(json.dumps({key: value for key, value in saved.items() if key != "defaults"})))
    for group in groups:
        # Another option of a group starts from its own values: those saved for the previous one may not fit it.
        *parts, last = _section_of(group).split(".")
        section = result
        for part in parts:
            section = section.get(part, {})
        section.pop(last, None)
    for key, value in values.items():
        *parts, last = key.split(".")
        section = result
        for part in parts:
            if not isinstance(section.get(part), dict):
                section[part] = {}
            section = section[part]
        section[last] = value
    return result


def _section_of(group: str) -> str:
    """Return the section that a group fills, such as `corpus.sources.wiki` for `+source@corpus.sources.wiki`."""
    return group.removeprefix("+").rpartition("@")[2].replace("/", ".")


def saved_choices(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `lasting_choices` has merged: `{key or group: value}`, groups first.

    Example:
        >>> saved_choices({"defaults": [{"override /model": "small"}, "_self_"], "optimizer": {"lr": 0.001}})
        {'model': 'small', 'optimizer.lr': 0.001}
    """
    groups = {
        key.removeprefix("override ").removeprefix("/"): option
        for item in saved.get("defaults", [])
        if isinstance(item, Mapping)
        for key, option in item.items()
    }
    return {**groups, **dict(_leaves({key: value for key, value in saved.items() if key != "defaults"}))}


def _leaves(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def without_choices(saved: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return the content of conf/local/default.yaml without some choices.

    Args:
        keys: Saved keys or groups. A section or group also drops the values saved inside it.

    Example:
        >>> without_choices(lasting_choices({}, {"model": "small"}, {"optimizer.lr": 0.001}), ["optimizer.lr"])
        {'defaults': [{'override /model': 'small'}, '_self_']}
    """
    choices = saved_choices(saved)
    dropped: set[str] = set()
    for key in keys:
        found = {one for one in choices for name in (one, one.partition("@")[2]) if f"{name}.".startswith(f"{key}.")}
        if not found:
            raise ConfigError(f"{key} is not saved. Saved: {', '.join(choices) or 'nothing'}.")
        dropped |= found
    groups = {f"{start}/{key}" for key in dropped for start in ("override ", "")}
    defaults = [item for item in saved.get("defaults", []) if not (isinstance(item, Mapping) and groups & item.keys())]
    values = {key: value for key, value in saved.items() if key != "defaults"}
    return {"defaults": defaults, **_pruned(values, dropped)}


def _pruned(section: Mapping[str, Any], dropped: set[str], prefix: str = "") -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in section.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            inner = _pruned(value, dropped, f"{name}.")
            if inner:
                kept[key] = inner
        elif name not in dropped:
            kept[key] = value
    return kept


def described(changes: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    """Yield one line per key, for display."""
    for key, (old, new) in changes.items():
        yield f"  {key}: {json.dumps(old)} -> {json.dumps(new)}"
