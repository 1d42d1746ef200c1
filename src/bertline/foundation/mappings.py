"""Nested mappings by dotted keys."""

from collections.abc import Iterator, Mapping
from typing import Any

ABSENT = "(absent)"
"""Value in `differences` for a key that one side lacks."""


def differences(old: Any, new: Any, prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys whose values differ, with both values; lists are compared as a whole.

    >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}})
    {'a.c': (2, 3)}
    """
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return {} if old == new else {prefix: (old, new)}
    changed: dict[str, tuple[Any, Any]] = {}
    for key in [*old, *(key for key in new if key not in old)]:
        where = f"{prefix}.{key}" if prefix else str(key)
        changed.update(differences(old.get(key, ABSENT), new.get(key, ABSENT), where))
    return changed


def value_at(mapping: Any, key: str) -> Any:
    """Return the value at a dotted key; None if there is none.

    >>> value_at({"a": {"b": 1}}, "a.b"), value_at({}, "a.b")
    (1, None)
    """
    for part in key.split("."):
        mapping = mapping.get(part) if isinstance(mapping, Mapping) else None
    return mapping


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values of a nested mapping; lists of mappings are indexed, other lists
    are values.

    >>> list(leaves({"optimizer": {"betas": [0.9, 0.999]}, "phases": [{"steps": 10}]}))
    [('optimizer.betas', [0.9, 0.999]), ('phases.0.steps', 10)]
    """
    prefix = f"{key}." if key else ""
    if isinstance(value, Mapping) and (value or not key):
        for name, item in value.items():
            yield from leaves(item, f"{prefix}{name}")
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from leaves(item, f"{prefix}{index}")
    else:
        yield key, value
