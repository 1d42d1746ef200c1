"""Readers of label cells: one label, several labels, or a number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bertline.tasks.bad_rows import BadRow
from bertline.tasks.rows import Label

Labels: TypeAlias = Callable[[object, str], Label]
"""Function from a cell and its place (for messages) to the label.

Raises:
    BadRow: The cell is not a valid label.
"""


@dataclass(frozen=True, slots=True)
class _Words:
    """What readers of labels as text share: integral floats become integers, class indices become class names."""

    pattern: re.Pattern[str] | None
    """Regular expression whose first group is the label; None takes the whole cell. Each label of a row must match."""
    separator: str | None
    """Separator of several labels in a text; None reads a text as one label."""
    names: list[str] | None
    """Class names of a dataset by index; None if cells are the labels themselves."""


class OneLabel(_Words):
    """Reader of one label per row; it does not use the separator."""

    def __call__(self, value: object, place: str) -> str:
        """Return the label of a cell.

        Raises:
            BadRow: The cell is empty, a list or an unknown class index, or does not match the pattern.
        """
        if isinstance(value, list | tuple | np.ndarray):
            raise BadRow(
                "several_labels",
                f"{place}: the label is a list ({value!r}). Set multi_label: true if rows have several labels.",
            )
        label = _word(value, self.names, place)
        if not label:
            raise BadRow("empty_label", f"{place}: the label is empty. Fix or remove the row.")
        return _matched(label, self.pattern, place)


class SeveralLabels(_Words):
    """Reader of zero or more labels per row, from a list or from text with separators."""

    def __call__(self, value: object, place: str) -> tuple[str, ...]:
        """Return the labels of a cell in order, without duplicates.

        Raises:
            BadRow: A label is an unknown class index or does not match the pattern.
        """
        words: Sequence[object]
        if isinstance(value, list | tuple | np.ndarray):
            words = list(value)
        elif isinstance(value, str) and self.separator is not None:
            words = value.split(self.separator)
        else:
            words = [value]
        labels = (_word(word, self.names, place) for word in words)
        return tuple(dict.fromkeys(_matched(label, self.pattern, place) for label in labels if label))


@dataclass(frozen=True, slots=True)
class ANumber:
    """Reader of one number per row, within the bounds of a scale."""

    low: float
    high: float
    pattern: re.Pattern[str] | None = None
    """Regular expression whose first group is the number; None takes the whole cell."""

    def __call__(self, value: object, place: str) -> float:
        """Return the number of a cell.

        Raises:
            BadRow: The cell is empty, not a number or outside the scale, or does not match the pattern.
        """
        cell = "" if value is None or value != value else str(value).strip()
        if not cell:
            raise BadRow("empty_label", f"{place}: the number is empty. Fix or remove the row.")
        cell = _matched(cell, self.pattern, place)
        try:
            number = math.nan if isinstance(value, bool) else float(cell)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise BadRow(
                "not_a_number",
                f"{place}: {cell!r} is no number. Is source.label_column the right column? Else fix the row.",
            )
        if not self.low <= number <= self.high:
            raise BadRow(
                "number_outside_the_scale",
                f"{place}: {cell} is not on the scale from {self.low:g} to {self.high:g} (the task's low and high). "
                "Fix the row or the scale.",
            )
        return number


def _word(value: object, names: list[str] | None, place: str) -> str:
    if names is not None and isinstance(value, int | np.integer) and not isinstance(value, bool):
        if not 0 <= value < len(names):
            raise BadRow(
                "unknown_label",
                f"{place}: the label is {value}, and there are {len(names)} classes. A split without labels cannot "
                "be scored: set it to null in the task's source, and it is cut from train.",
            )
        return names[int(value)]
    if isinstance(value, dict):
        raise BadRow("unknown_label", f"{place}: the label is {value!r}; expected a word or a number.")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    # pandas writes missing cells as NaN.
    return "" if value is None or value != value else str(value).strip()


def _matched(label: str, pattern: re.Pattern[str] | None, place: str) -> str:
    if pattern is None:
        return label
    found = pattern.search(label)
    if found is None or not found[1]:
        raise BadRow(
            "label_without_pattern",
            f"{place}: the label {label!r} does not match source.label_pattern {pattern.pattern!r}. Fix the row or "
            "the pattern.",
        )
    return found[1]
