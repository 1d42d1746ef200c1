"""Choices: values that a person or an experiment set, and that plain composition of `conf/` would not give.

The header of `params.yaml` lists the keys that an experiment set, and contains a digest of the content, so that neither
an experiment's choice nor a manual edit is undone silently.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import sha256_of_json
from bertline.foundation.mappings import differences

_DIGEST = "# content: "
_CHOICE = "# set by an experiment: "


def header(mapping: Mapping[str, Any], set_by_experiment: Mapping[str, Any]) -> str:
    """Return the comment lines above the content of params.yaml."""
    lines = ["# Composed from conf/ by `configure`; edit conf/ (docs/howto/settings.md)."]
    lines += [f"{_CHOICE}{key}={json.dumps(value)}" for key, value in set_by_experiment.items()]
    return "\n".join([*lines, f"{_DIGEST}{sha256_of_json(mapping)[:16]}"]) + "\n"


def choices_at_stake(text: str, present: Mapping[str, Any], composed: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the keys that writing `composed` over the present params.yaml would undo: `{key: (present, composed)}`.

    These are the differing keys that an experiment set, according to the header. If the content is not what `configure`
    wrote (it was edited, or composed by DVC just before a kill), these are all differing keys.
    """
    changed = differences(present, composed)
    if f"{_DIGEST}{sha256_of_json(present)[:16]}" not in text:
        return changed
    chosen = {line.removeprefix(_CHOICE).split("=", 1)[0] for line in text.splitlines() if line.startswith(_CHOICE)}
    return {key: values for key, values in changed.items() if key in chosen}


def lasting_choices(
    saved: Mapping[str, Any], groups: Mapping[str, str | None], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge new choices into the content of conf/local/default.yaml; the newer choice of a key wins.

    Another option of a group drops what was saved inside it for the one before: values, and groups such as the sources
    of `corpus=sources`.

    Args:
        groups: Config group to option (`{"model": "small"}`); None leaves the group out. A group that the defaults do
            not have begins with `+`.

    >>> lasting_choices({}, {"model": "small"}, {"optimizer.lr": 0.001})
    {'defaults': [{'override /model': 'small'}, '_self_'], 'optimizer': {'lr': 0.001}}
    """
    kept = _groups_of(saved)
    leaves = dict(_leaves_of(saved))
    for group in groups:
        section = group.removeprefix("+").rpartition("@")[2].replace("/", ".")  # that the group fills
        kept = {key: option for key, option in kept.items() if f"@{section}." not in key}
        leaves = _outside(leaves, section)
    for group, option in groups.items():
        added = f"/{group.removeprefix('+')}"
        kept[added if group.startswith("+") or added in kept else f"override {added}"] = option
    for key, value in values.items():
        others = {other: old for other, old in _outside(leaves, key).items() if not key.startswith(f"{other}.")}
        leaves = {**others, key: value}
    return _content(kept, leaves)


def saved_choices(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `lasting_choices` has merged: `{key or group: value}`, groups first.

    >>> saved_choices({"defaults": [{"override /model": "small"}, "_self_"], "optimizer": {"lr": 0.001}})
    {'model': 'small', 'optimizer.lr': 0.001}
    """
    return {_name_of(key): option for key, option in _groups_of(saved).items()} | dict(_leaves_of(saved))


def without_choices(saved: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return the content of conf/local/default.yaml without some saved keys or groups, and what is inside them.

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
    groups = {key: option for key, option in _groups_of(saved).items() if _name_of(key) not in dropped}
    return _content(groups, {key: value for key, value in _leaves_of(saved) if key not in dropped})


def _groups_of(saved: Mapping[str, Any]) -> dict[str, str | None]:
    items = (item for item in saved.get("defaults", []) if isinstance(item, Mapping))
    return {key: option for item in items for key, option in item.items()}


def _name_of(key: str) -> str:
    return key.removeprefix("override ").removeprefix("/")


def _leaves_of(section: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves_of(value, f"{above}{key}.")
        elif above or key != "defaults":
            yield f"{above}{key}", value


def _outside(leaves: Mapping[str, Any], section: str) -> dict[str, Any]:
    return {key: value for key, value in leaves.items() if not f"{key}.".startswith(f"{section}.")}


def _content(groups: Mapping[str, str | None], leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the file; Hydra wants what overrides at the end."""
    ordered = sorted(groups, key=lambda key: key.startswith("override"))
    content: dict[str, Any] = {"defaults": [{key: groups[key]} for key in ordered] + ["_self_"]}
    for key, value in leaves.items():
        *parts, last = key.split(".")
        section = content
        for part in parts:
            section = section.setdefault(part, {})
        section[last] = value
    return content


def described(changes: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    """Yield one line per key, for display; long values are cut."""
    for key, values in changes.items():
        old, new = (text if len(text) <= 80 else f"{text[:79]}…" for text in map(json.dumps, values))
        yield f"  {key}: {old} -> {new}"
