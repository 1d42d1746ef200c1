"""Configuration whose types say more: bounds of numbers, and which fields name data of the user.

What joins several fields is checked in `check`.
"""

import dataclasses
import functools
import operator
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

_Mark = TypeVar("_Mark")


class Bound(NamedTuple):
    """One bound of a number, as metadata of its type; a `tuple` of numbers has it for each."""

    words: str
    holds: Callable[[float, float], bool]
    limit: float


# Each takes the limit.
at_least = functools.partial(Bound, "at least", operator.ge)
above = functools.partial(Bound, "above", operator.gt)
at_most = functools.partial(Bound, "at most", operator.le)
below = functools.partial(Bound, "below", operator.lt)

PositiveInt = Annotated[int, at_least(1)]
NonNegativeInt = Annotated[int, at_least(0)]
PositiveFloat = Annotated[float, above(0)]
NonNegativeFloat = Annotated[float, at_least(0)]
Fraction = Annotated[float, at_least(0), at_most(1)]
PositiveFraction = Annotated[float, above(0), at_most(1)]
FractionBelowOne = Annotated[float, at_least(0), below(1)]


class DataType(NamedTuple):
    """Metadata of the type of a field that names data of the user: a file, a folder, or a path with wildcards."""

    may_be_on_hub: bool
    """Whether it may also be the name of a model or dataset on the hub."""


UserPath = Annotated[str, DataType(may_be_on_hub=False)]
UserPathOrHubName = Annotated[str, DataType(may_be_on_hub=True)]


class UserData(NamedTuple):
    """Data of the user, as a configuration names it."""

    key: str
    path: str
    may_be_on_hub: bool

    @property
    def is_here(self) -> bool:
        """Whether the path is one of this machine, and no URL or name on the hub; there need not be anything."""
        is_path = Path(self.path).exists() or self.path.startswith((".", "/", "~", "data/"))
        return is_path or not (self.may_be_on_hub or "://" in self.path)


class Checked:
    """Base of configuration dataclasses: raises ValueError for a number out of the bounds of its type.

    Then it calls `check` of every class that the configuration is made of, those of the bases first.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        own: Any = type(self)
        for name, bounds in _bounds(own).items():
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else [value]:
                if number is not None and not all(bound.holds(number, bound.limit) for bound in bounds):
                    rule = " and ".join(f"{bound.words} {bound.limit}" for bound in bounds)
                    raise ValueError(f"{name} must be {rule}, found {number}")
        for cls in reversed(own.__mro__):
            if "check" in vars(cls):
                vars(cls)["check"](self)


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


@functools.cache
def _bounds(cls: Any) -> dict[str, list[Bound]]:
    """Return the bounds of the fields of a dataclass that have any, also inside of `| None` and of `tuple`."""
    return {name: bounds for name, hint in _hints(cls).items() if (bounds := _marks(hint, Bound))}


def user_data_in(value: Any, key: str = "", hint: Any = None) -> Iterator[UserData]:
    """Yield the user's data that the fields of a configuration name: those of the types `UserPath`, as well as within
    `| None`, tuples and nested sections.

    Args:
        key: Key of the configuration, with which the keys of its fields begin.
        hint: Type of the value; a dataclass knows those of its fields.
    """
    prefix = f"{key}." if key else ""
    if dataclasses.is_dataclass(value):
        cls: Any = type(value)
        for name, one in _hints(cls).items():
            yield from user_data_in(getattr(value, name), f"{prefix}{name}", one)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from user_data_in(item, f"{prefix}{name}")
    elif isinstance(value, tuple):
        types = (hint, *typing.get_args(hint))
        of_items = next((typing.get_args(one)[0] for one in types if typing.get_origin(one) is tuple), None)
        for number, item in enumerate(value):
            yield from user_data_in(item, f"{prefix}{number}", of_items)
    elif isinstance(value, str):
        yield from (UserData(key, value, mark.may_be_on_hub) for mark in _marks(hint, DataType))


def names_user_data(cls: Any) -> bool:
    """Return whether a configuration class has a field that names data of the user."""
    return any(_marks(hint, DataType) for hint in _hints(cls).values())


def _marks(hint: Any, kind: type[_Mark]) -> list[_Mark]:
    parts = (hint, *typing.get_args(hint))
    return [mark for part in parts for mark in getattr(part, "__metadata__", ()) if isinstance(mark, kind)]
