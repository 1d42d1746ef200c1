"""Sections of conf/ as bertline's dataclasses, read with PyYAML and the standard library only.

A bare GPU image has neither Hydra nor pydantic, so the only checks are those of the dataclasses themselves.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

CONF = Path(__file__).parents[1] / "conf"
NEVER = 1_000_000_000
UNWATCHED = {
    "validate_every_steps": NEVER,
    "validation_sequences": 1,
    "checkpoint_every_steps": NEVER,
    "mask_predictions": {"every_steps": NEVER, "num_guesses": 1, "sentences": []},
}
"""Changes of the section `pretrain` for a training that does nothing but train."""
_REFERENCE = re.compile(r"\$\{(\w+)\.(\w+)\}")


def section(cls: Any, name: str, **changes: Any) -> Any:
    """Return the section `name` (such as `model/base`) as a `cls`, with some keys changed."""
    content = _read(name)
    unknown = changes.keys() - content.keys()
    if unknown:
        raise SystemExit(f"conf/{name}.yaml has no {', '.join(sorted(unknown))}; it has {', '.join(content)}")
    return build(cls, _resolved(name.partition("/")[0], {**content, **changes}))


def build(kind: Any, value: Any) -> Any:
    """Convert plain data to the annotated type `kind`: dataclasses, unions distinguished by `kind`, tuples, numbers."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: build(hints.get(name), each) for name, each in value.items()})
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else build(_member(parts, value), value)
    if origin is tuple:
        return tuple(build(parts[0], each) for each in value)
    if kind is float and isinstance(value, (str, int)):
        return float(value)  # PyYAML reads 1e-4 as a string
    return value


def parse_changes(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parse `["runtime.num_workers=4"]` to `{"runtime": {"num_workers": 4}}`; values are JSON, otherwise strings."""
    changes: dict[str, dict[str, Any]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        name, dot, key = key.partition(".")
        if not (equals and dot):
            raise SystemExit(f"--set takes section.key=value, found {text!r}")
        try:
            changes.setdefault(name, {})[key] = json.loads(value)
        except json.JSONDecodeError:
            changes.setdefault(name, {})[key] = value
    return changes


def _read(name: str) -> dict[str, Any]:
    """Read a file of conf/, merged over the files of its defaults list: of its group, or of a group within it."""
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    group = name.rpartition("/")[0]
    merged: dict[str, Any] = {}
    for base in content.pop("defaults", []):
        if isinstance(base, dict):
            merged |= {key: _read(f"{group}/{key}/{chosen}") for key, chosen in base.items()}
        elif base != "_self_":
            merged |= _read(f"{group}/{base}")
    return merged | content


def _resolved(own: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `own` with references to its own keys (`${optimizer.lr}`) replaced by their values."""
    values = dict(content)
    for key in content:
        passed = {key}
        while isinstance(values[key], str) and (found := _REFERENCE.fullmatch(values[key])):
            owner, other = found.groups()
            if owner != own or other not in content or other in passed:
                raise SystemExit(
                    f"{own}.{key} is {content[key]}, which names no value of {own}; give {own}.{key} itself"
                )
            passed.add(other)
            values[key] = content[other]
    return values


def _member(parts: tuple[Any, ...], value: Any) -> Any:
    """Return the member of a union that a value belongs to."""
    members = [part for part in parts if part is not types.NoneType]
    if isinstance(value, Mapping) and "kind" in value:
        for member in members:
            if value["kind"] in typing.get_args(typing.get_type_hints(member)["kind"]):
                return member
    return float if members == [float] else members[0]
