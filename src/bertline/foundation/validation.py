"""Validation of untyped mappings (YAML, command line) into frozen dataclasses.

Dataclasses import only the standard library; only this module uses pydantic, to check the values of their fields.
Validation is strict: an unknown key, a missing key or a value of another type is an error that names the key. The
members of a union of dataclasses are distinguished by their `kind` field.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from bertline.foundation.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_T = TypeVar("_T")


def validate(cls: type[_T], mapping: Mapping[str, Any], *, where: str = "") -> _T:
    """Convert a mapping to a frozen dataclass, or raise an error that names the wrong keys.

    Args:
        cls: A dataclass, possibly nested; fields may be unions of dataclasses that each have `kind: Literal[...]`.
        mapping: Plain data (dicts, lists, strings, numbers, booleans, None).
        where: Key of the mapping in the configuration, for messages (`"tasks.docs_library"`).

    Raises:
        ConfigError: The mapping is invalid; the message lists all problems with keys and kinds, or if there are none,
            all problems with values, one per line.
    """
    problems = _Problems([], [])
    built = _built(cls, mapping, where, problems)
    if found := problems.keys or problems.values:
        raise ConfigError("The configuration is not valid:\n" + "\n".join(f"  - {problem}" for problem in found))
    return cast("_T", built)


class _Problems(NamedTuple):
    keys: list[str]
    """Unknown and missing keys, unknown kinds."""
    values: list[str]


def to_mapping(config: Any) -> dict[str, Any]:
    """Convert a configuration dataclass to plain data for YAML or JSON (tuples become lists)."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def _built(expected: Any, value: Any, where: str, problems: _Problems) -> Any:
    """Return a value as the expected type, and note what is wrong with it."""
    if dataclasses.is_dataclass(expected):
        return _built_dataclass(expected, value, where, problems)
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if _holds_dataclass(expected):
        if origin in (typing.Union, types.UnionType):
            return _built_member(arguments, value, where, problems)
        if origin is tuple and isinstance(value, list | tuple):
            return tuple(_built(arguments[0], one, f"{where}[{at}]", problems) for at, one in enumerate(value))
        if origin in (dict, Mapping) and isinstance(value, Mapping):
            return {str(key): _built(arguments[1], one, _join(where, str(key)), problems) for key, one in value.items()}
    from pydantic import ValidationError

    try:
        # Strict validation accepts lists for tuples only through JSON.
        return _adapter(expected).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        for problem in error.errors():
            key = where
            for part in map(str, problem["loc"]):
                key = f"{key}[{part}]" if part.isdigit() else _join(key, part)
            message = problem["msg"]
            problems.values.append(f"{key} is {problem['input']!r}: {message[:1].lower() + message[1:]}.")


def _built_dataclass(expected: Any, value: Any, where: str, problems: _Problems) -> Any:
    fields = {field.name: field for field in dataclasses.fields(expected)}
    known, place = ", ".join(fields), where or "the configuration"
    if not isinstance(value, Mapping):
        problems.keys.append(f"{place} is {value!r}; expected keys {known}.")
        return None
    before = sum(map(len, problems))
    for key in value:
        if key not in fields:
            hint = closest(key, fields)
            problems.keys.append(f"{_join(where, str(key))} is not a known key.{hint} Known: {known}.")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in value:
            problems.keys.append(f"{_join(where, name)} is missing.")
    hints = _hints(expected)
    given = {name: _built(hints[name], value[name], _join(where, name), problems) for name in fields if name in value}
    if sum(map(len, problems)) > before:
        return None
    try:
        return expected(**given)
    except ValueError as error:
        problems.values.append(f"{place}: {str(error)[:1].lower() + str(error)[1:]}.")


def _built_member(members: tuple[Any, ...], value: Any, where: str, problems: _Problems) -> Any:
    """Build the dataclass of a union that a value is of: that of its `kind`, or the only one."""
    classes = [member for member in members if dataclasses.is_dataclass(member)]
    tagged = {tag: member for member in classes for tag in _kinds(member)}
    if value is None and type(None) in members:
        return None
    if not tagged:
        return _built(classes[0], value, where, problems)
    if not isinstance(value, Mapping):
        kinds = " | ".join(sorted(tagged))
        problems.keys.append(f"{where} is {value!r}; expected a section with `kind: {kinds}`.")
    elif (kind := value.get("kind")) in tagged:
        return _built(tagged[kind], value, where, problems)
    else:
        known = ", ".join(sorted(tagged))
        problems.keys.append(f"{_join(where, 'kind')} is {kind!r}; expected one of {known}.{closest(kind, tagged)}")
    return None


@functools.cache
def _holds_dataclass(expected: Any) -> bool:
    return dataclasses.is_dataclass(expected) or any(map(_holds_dataclass, typing.get_args(expected)))


@functools.cache
def _adapter(expected: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(expected)


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _kinds(cls: Any) -> tuple[str, ...]:
    hint = _hints(cls).get("kind")
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def closest(word: object, known: Iterable[object]) -> str:
    """Return a sentence that asks whether the nearest of the known words was meant; empty without one."""
    matches = difflib.get_close_matches(str(word), [str(item) for item in known], n=1)
    return f" Did you mean {matches[0]}?" if matches else ""
