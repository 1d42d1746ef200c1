"""Validation of untyped mappings (YAML, command line) into frozen dataclasses.

Dataclasses import only the standard library; only this module uses pydantic to check mappings against them. Validation
is strict: an unknown key, a missing key or a value of another type is an error that names the key. The members of a
union of dataclasses are distinguished by their `kind` field.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bertline.foundation.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


def validate(cls: type[T], mapping: Mapping[str, Any], *, where: str = "") -> T:
    """Convert a mapping to a frozen dataclass, or raise an error that names the wrong keys.

    Args:
        cls: A dataclass, possibly nested; fields may be unions of dataclasses that each have `kind: Literal[...]`.
        mapping: Plain data (dicts, lists, strings, numbers, booleans, None).
        where: Key of the mapping in the configuration, for messages (`"tasks.docs_library"`).

    Raises:
        ConfigError: The mapping is invalid; the message lists all problems with keys and kinds, or if there are none,
            all problems with values, one per line.
    """
    from pydantic import ValidationError

    problems = list(_shape_problems(cls, mapping, where))
    if not problems:
        try:
            # Strict validation accepts lists for tuples and dicts for dataclasses only through JSON.
            return cast("T", _adapter(cast("Any", cls)).validate_json(json.dumps(mapping), strict=True))
        except ValidationError as error:
            members = dict(_union_members(cls))
            relevant = [problem for problem in error.errors() if not _of_another_kind(problem["loc"], mapping, members)]
            problems = list(_messages(relevant, where))
    raise ConfigError("The configuration is not valid:\n" + "\n".join(f"  - {problem}" for problem in problems))


@functools.cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    """Return pydantic's validator of a class: building that of the whole configuration takes longer than its use."""
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def to_mapping(config: Any) -> dict[str, Any]:
    """Convert a configuration dataclass to plain data for YAML or JSON (tuples become lists)."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def _shape_problems(expected: Any, value: Any, where: str) -> Iterator[str]:
    """Yield unknown keys, missing keys and unknown kinds in nested dataclasses, before types are checked."""
    if dataclasses.is_dataclass(expected):
        if not isinstance(value, Mapping):
            yield f"{where or 'the configuration'} is {value!r}; expected keys {', '.join(_fields(expected))}."
            return
        yield from _key_problems(expected, value, where)
        hints = _hints(cast("Any", expected))
        for name in _fields(expected):
            if name in value:
                yield from _shape_problems(hints[name], value[name], _join(where, name))
        return
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (typing.Union, types.UnionType):
        yield from _union_problems(arguments, value, where)
    elif origin is tuple and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _shape_problems(arguments[0], item, f"{where}[{index}]")
    elif origin in (dict, Mapping) and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _shape_problems(arguments[1], item, _join(where, str(key)))


def _union_problems(members: tuple[Any, ...], value: Any, where: str) -> Iterator[str]:
    tagged = {tag: member for member in members if dataclasses.is_dataclass(member) for tag in _kinds(member)}
    if not tagged and isinstance(value, Mapping):
        for member in members:
            if dataclasses.is_dataclass(member):
                yield from _shape_problems(member, value, where)
        return
    if not tagged or (value is None and type(None) in members) or not isinstance(value, Mapping):
        if tagged and not isinstance(value, Mapping) and value is not None:
            yield f"{where} is {value!r}; expected a section with `kind: {' | '.join(sorted(tagged))}`."
        return
    kind = value.get("kind")
    if kind in tagged:
        yield from _shape_problems(tagged[kind], value, where)
    else:
        known = ", ".join(sorted(tagged))
        yield f"{_join(where, 'kind')} is {kind!r}; expected one of {known}.{_closest(kind, tagged)}"


def _key_problems(expected: Any, value: Mapping[str, Any], where: str) -> Iterator[str]:
    known = _fields(expected)
    for key in value:
        if key not in known:
            yield f"{_join(where, str(key))} is not a known key.{_closest(key, known)} Known: {', '.join(known)}."
    for field in dataclasses.fields(expected):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in value:
            yield f"{_join(where, field.name)} is missing."


def _union_members(expected: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the class name and kinds of every dataclass with a `kind` field anywhere inside a type."""
    if dataclasses.is_dataclass(expected):
        if kinds := _kinds(expected):
            yield expected.__name__, kinds  # type: ignore[union-attr]
        for hint in _hints(cast("Any", expected)).values():
            yield from _union_members(hint)
    for argument in typing.get_args(expected):
        yield from _union_members(argument)


def _of_another_kind(path: tuple[str | int, ...], value: Any, members: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether a problem belongs to a union member that does not match the value's `kind`: pydantic tries every
    member, and puts the member's class name into the path of the problem."""
    with suppress(KeyError, IndexError, TypeError):
        for part in path:
            if part not in members:
                value = value[part]
            elif isinstance(value, Mapping) and value.get("kind") not in members[str(part)]:
                return True
    return False


def _messages(problems: list[Any], where: str) -> Iterator[str]:
    for problem in problems:
        # For a union, pydantic adds the member's class name to the path; users know keys, not class names.
        parts = [str(part) for part in problem["loc"] if not (isinstance(part, str) and part[:1].isupper())]
        key = where
        for part in parts:
            key = f"{key}[{part}]" if part.isdigit() else _join(key, part)
        message = problem["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        value = "" if problem["type"] in ("value_error", "assertion_error") else f" is {problem['input']!r}"
        yield f"{key or 'the configuration'}{value}: {message[:1].lower() + message[1:]}."


def _fields(cls: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


def _kinds(cls: Any) -> tuple[str, ...]:
    hint = _hints(cast("Any", cls)).get("kind")
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _closest(word: Any, known: Any) -> str:
    matches = difflib.get_close_matches(str(word), [str(item) for item in known], n=1)
    return f" Did you mean {matches[0]}?" if matches else ""
