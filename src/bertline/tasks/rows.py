"""Labelled rows as read from a source, before labels are mapped to indices."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Label = TypeVar("Label")
"""Type of a label: `str` in classification, `tuple[str, ...]` with several labels per row, `float` in regression."""


@dataclass(frozen=True, slots=True)
class LabelledRow(Generic[Label]):
    """One labelled example."""

    id: str
    """Id, unique in the task, that names the origin of the row (`train.tsv:17`, `numpy.linalg#norm:match`)."""
    text: str
    text_pair: str | None
    label: Label

    def content_key(self) -> str:
        """Return a key that is equal for rows with equal texts, ignoring case and white space.

        Example:
            >>> LabelledRow("a", "Sum of  squares", None, "x").content_key()
            'sum of squares'
        """
        return "\0".join(" ".join(text.casefold().split()) for text in (self.text, self.text_pair) if text is not None)


@dataclass(frozen=True, slots=True)
class SourceRows(Generic[Label]):
    """Rows of a source by split. A split that is None is missing and is cut from train."""

    train: list[LabelledRow[Label]]
    dev: list[LabelledRow[Label]] | None
    test: list[LabelledRow[Label]] | None
    dropped: Counter[str] = field(default_factory=Counter)
    """Number of rows that the source dropped, by reason."""
    extra_tests: dict[str, list[LabelledRow[Label]]] = field(default_factory=dict)
    """Additional test sets by name."""

    def by_split(self) -> dict[str, list[LabelledRow[Label]]]:
        """Return the rows of `train`, `dev`, `test` and, for each extra test, `test_NAME`."""
        splits = {"train": self.train, "dev": self.dev or [], "test": self.test or []}
        return {**splits, **{f"test_{name}": rows for name, rows in self.extra_tests.items()}}


def text_pairs_of(rows: list[LabelledRow[Label]]) -> list[str] | None:
    """Return the second texts; None if rows are single passages."""
    return [row.text_pair for row in rows if row.text_pair is not None] or None
