"""Configuration that checks itself: bounds of numbers stand in the types, and what joins several fields in `check`."""

import functools
import operator
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple


class Bound(NamedTuple):
    """One bound of a number, as metadata of its type; a `tuple` of numbers has it for each."""

    words: str
    holds: Callable[[float, float], bool]
    limit: float


def at_least(limit: float) -> Bound:
    """Return the bound of numbers that are `limit` or more."""
    return Bound("at least", operator.ge, limit)


def above(limit: float) -> Bound:
    """Return the bound of numbers that are more than `limit`."""
    return Bound("above", operator.gt, limit)


def at_most(limit: float) -> Bound:
    """Return the bound of numbers that are `limit` or less."""
    return Bound("at most", operator.le, limit)


def below(limit: float) -> Bound:
    """Return the bound of numbers that are less than `limit`."""
    return Bound("below", operator.lt, limit)


PositiveInt = Annotated[int, at_least(1)]
NonNegativeInt = Annotated[int, at_least(0)]
PositiveFloat = Annotated[float, above(0)]
NonNegativeFloat = Annotated[float, at_least(0)]
Fraction = Annotated[float, at_least(0), at_most(1)]
PositiveFraction = Annotated[float, above(0), at_most(1)]
FractionBelowOne = Annotated[float, at_least(0), below(1)]


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
def _bounds(cls: Any) -> dict[str, list[Bound]]:
    """Return the bounds of the fields of a dataclass that have any, also inside of `| None` and of `tuple`."""
    found: dict[str, list[Bound]] = {}
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        for part in (hint, *typing.get_args(hint)):
            bounds = [one for one in getattr(part, "__metadata__", ()) if isinstance(one, Bound)]
            if bounds:
                found[name] = bounds
    return found
