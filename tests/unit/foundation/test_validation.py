"""Validation names the key that is wrong, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from bertline.foundation.checked import Checked, NonNegativeInt, PositiveFloat, at_most
from bertline.foundation.errors import ConfigError
from bertline.foundation.validation import validate


@dataclass(frozen=True, kw_only=True, slots=True)
class Circle(Checked):
    kind: Literal["circle"]
    radius: PositiveFloat


@dataclass(frozen=True, kw_only=True, slots=True)
class Square:
    kind: Literal["square", "box"]
    side: float
    name: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    width: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    shape: Circle | Square
    frame: Frame | None
    shapes: dict[str, Circle | Square]
    sizes: tuple[int, ...]


def picture(**changes: object) -> dict[str, object]:
    return {"shape": {"kind": "circle", "radius": 1.0}, "frame": None, "shapes": {}, "sizes": [1], **changes}


def problems(**changes: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate(Picture, picture(**changes))
    return str(caught.value).splitlines()[1:]


def test_a_broken_rule_of_one_kind_says_nothing_of_the_others() -> None:
    assert problems(shape={"kind": "circle", "radius": -1.0}) == ["  - shape: radius must be above 0, found -1.0."]


def test_an_unknown_kind_is_met_with_the_known_ones() -> None:
    assert problems(shape={"kind": "cirle"}) == [
        "  - shape.kind is 'cirle'; expected one of box, circle, square. Did you mean circle?"
    ]


@pytest.mark.parametrize("value", ["1", 1.5, True, None])
def test_nothing_is_converted_silently(value: object) -> None:
    (problem,) = problems(sizes=[value])
    assert problem.startswith("  - sizes[0] is ")


def test_unknown_and_missing_keys_are_named() -> None:
    found = problems(shape={"kind": "square", "side": 1.0, "nmae": "x"})
    assert found[0].startswith("  - shape.nmae is not a known key. Did you mean name?")
    assert found[1] == "  - shape.name is missing."


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sides(Checked):
    counts: tuple[Annotated[NonNegativeInt, at_most(9)], ...] = ()
    least: int | None = None

    def check(self) -> None:
        if sum(self.counts) == 1:
            raise ValueError("one side is none")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides(_Sides):
    most: NonNegativeInt | None = None

    def check(self) -> None:
        if self.most == 1:
            raise ValueError("one side at most is none")


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"counts": (3, 10)}, "counts must be at least 0 and at most 9, found 10"), ({"counts": (1,)}, "one side is none"),
     ({"most": -1}, "most must be at least 0, found -1"), ({"most": 1}, "one side at most is none"),
     ({"most": float("nan")}, "most must be at least 0, found nan")],
)  # fmt: skip
def test_bounds_of_types_and_the_checks_of_all_classes_hold(changes: dict[str, object], message: str) -> None:
    assert Sides(counts=(0, 9), most=None)
    with pytest.raises(ValueError, match=f"^{message}$"):
        Sides(**changes)
