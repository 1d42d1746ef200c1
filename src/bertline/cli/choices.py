"""Choices: values that a person or an experiment set, and that plain composition of `conf/` would not give.

The header of `params.yaml` lists the keys that an experiment set, and contains a digest of the content, so that neither
an experiment's choice nor a manual edit is undone silently.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf

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


def lasting_choices(saved: Mapping[str, Any], groups: Mapping[str, str | None], values: Mapping[str, Any]) -> Any:
    """Merge new choices into the content of conf/local/default.yaml; the newer choice of a key wins.

    Another option of a group drops what was saved inside it for the one before: values, and groups such as the sources
    of `corpus=sources`.

    Args:
        groups: Config group to option (`{"model": "small"}`); None leaves the group out. A group that the defaults do
            not have begins with `+`.

    >>> lasting_choices({}, {"model": "small"}, {"optimizer.lr": 0.001})
    {'defaults': [{'override /model': 'small'}, '_self_'], 'optimizer': {'lr': 0.001}}
    """
    items = (item for item in saved.get("defaults", []) if isinstance(item, Mapping))
    chosen = {key: option for item in items for key, option in item.items()}
    content = OmegaConf.create({**saved})
    for group, option in groups.items():
        section = group.removeprefix("+").rpartition("@")[2].replace("/", ".")  # that the group fills
        chosen = {key: kept for key, kept in chosen.items() if f"@{section}." not in key}
        above, _, name = section.rpartition(".")
        inside = OmegaConf.select(content, above) if above else content
        if inside is not None:
            inside.pop(name, None)
        added = f"/{group.removeprefix('+')}"
        chosen[added if group.startswith("+") or added in chosen else f"override {added}"] = option
    ordered = sorted(chosen, key=lambda key: key.startswith("override"))  # Hydra wants what overrides at the end
    content["defaults"] = [*({key: chosen[key]} for key in ordered), "_self_"]
    for key, value in values.items():
        OmegaConf.update(content, key, value, merge=False, force_add=True)
    return OmegaConf.to_container(content)


def described(changes: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    """Yield one line per key, for display; long values are cut."""
    for key, values in changes.items():
        old, new = (text if len(text) <= 80 else f"{text[:79]}…" for text in map(json.dumps, values))
        yield f"  {key}: {old} -> {new}"
