"""The dataclasses of the configuration: their types in the words of the reference tables, their keys and kinds."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from typing import Any

from bertline.foundation.checked import DataType

_WORDS = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null", Any: "value"}


def type_in_words(hint: Any) -> str:
    """Return a type as the tables name it, such as `number or null`."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        if isinstance(inner[1], DataType):
            return "path or hub name" if inner[1].may_be_on_hub else "path"
        bounds = [f"{bound.words} {bound.limit:,}" for bound in inner[1:]]
        return f"{type_in_words(inner[0])} {' and '.join(bounds)}"
    if dataclasses.is_dataclass(hint):
        return "section"
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin is tuple:
        return f"list of {_plural(type_in_words(inner[0]))}"
    if origin in (dict, Mapping):
        return f"mapping of names to {_plural(type_in_words(inner[1]))}"
    if inner:
        return " or ".join(dict.fromkeys(type_in_words(one) for one in inner))
    return _WORDS[hint]


def _plural(words: str) -> str:
    return " or ".join(
        re.sub("^(text|path|hub name|integer|number|section|value)\\b", r"\1s", word) for word in words.split(" or ")
    )


def is_own(cls: type) -> bool:
    """Return whether a class is of bertline, not of a plug-in; one made of others has the module of the first."""
    module = next(one.__module__ for one in cls.__mro__ if one.__module__ != one.__name__)
    return module.startswith("bertline.")


def members_of(hint: Any) -> list[Any]:
    """Return the dataclasses inside a type, but those of plug-ins."""
    if dataclasses.is_dataclass(hint):
        return [hint] if is_own(typing.cast("type", hint)) else []
    if typing.get_origin(hint) is typing.Literal:
        return []
    return [cls for one in typing.get_args(hint) for cls in members_of(one)]


def step_of(hint: Any) -> str:
    """Return what stands in a key between a list, or a mapping of names, and the keys of its entries."""
    origin = typing.get_origin(hint)
    return "[]" if origin is tuple else ".NAME" if origin in (dict, Mapping) else ""


def names_of(cls: Any) -> list[str]:
    """Return the keys of a dataclass."""
    return [field.name for field in dataclasses.fields(cls)]


def kinds_of(cls: Any) -> tuple[str, ...]:
    """Return the values of `kind` that choose a dataclass; none if it has no such key."""
    hint = typing.get_type_hints(cls).get("kind")
    return typing.get_args(hint) if hint is not None else ()
