"""Sections of conf/ as bertline's dataclasses, by PyYAML and the standard library alone.

A bare GPU image has no Hydra and no pydantic, so nothing is checked here that the dataclasses do not check themselves.
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
_REFERENCE = re.compile(r"\$\{(\w+)\.(\w+)\}")


def section(cls: Any, name: str, **changes: Any) -> Any:
    """The section `name` (such as `model/base`) as a `cls`, with some keys changed."""
    content = _read(name)
    unknown = changes.keys() - content.keys()
    if unknown:
        raise SystemExit(f"conf/{name}.yaml has no {', '.join(sorted(unknown))}; it has {', '.join(content)}")
    return build(cls, _resolved(name.partition("/")[0], {**content, **changes}))


def build(kind: Any, value: Any) -> Any:
    """Plain data as a value of the annotated type `kind`: dataclasses, unions told apart by `kind`, tuples, numbers."""
    if dataclasses.is_dataclass(kind):
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
    """`["runtime.num_workers=4"]` as `{"runtime": {"num_workers": 4}}`; values are JSON, or else strings."""
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
    """A file of conf/, over the files of its group that its defaults list names."""
    content = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    bases = content.pop("defaults", [])
    group = name.partition("/")[0]
    return {key: value for base in bases for key, value in _read(f"{group}/{base}").items()} | content


def _resolved(own: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """The section `own`, where references to its own keys (`${optimizer.lr}`) have become what they stand for."""
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
    """The member of a union that a value belongs to."""
    members = [part for part in parts if part is not types.NoneType]
    if isinstance(value, Mapping) and "kind" in value:
        for member in members:
            if value["kind"] in typing.get_args(typing.get_type_hints(member)["kind"]):
                return member
    return float if members == [float] else members[0]
