"""Labelled rows as a source gives them, before labels become numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Label = TypeVar("Label")
"""`str` in classification, `tuple[str, ...]` with several labels a row, `float` in regression."""


@dataclass(frozen=True, slots=True)
class LabelledRow(Generic[Label]):
    """One labelled example."""

    id: str
    """Unique in the task; says where the row is from (`train.tsv:17`, `torch.nn.functional:linear`)."""
    text: str
    text_pair: str | None
    label: Label

    def content_key(self) -> str:
        """What makes two rows the same example: both texts without regard to case and white space.

        Example:
            >>> LabelledRow("a", "Sum of  squares", None, "x").content_key()
            'sum of squares'
        """
        return "\0".join(" ".join(text.casefold().split()) for text in (self.text, self.text_pair) if text is not None)


@dataclass(frozen=True, slots=True)
class SourceRows(Generic[Label]):
    """What a source holds. None for a split that it does not have: that one is cut from train."""

    train: list[LabelledRow[Label]]
    dev: list[LabelledRow[Label]] | None
    test: list[LabelledRow[Label]] | None
    dropped: Counter[str] = field(default_factory=Counter)
    """Rows left out by the source, by reason."""
    extra_tests: dict[str, list[LabelledRow[Label]]] = field(default_factory=dict)
    """Further test sets by name."""

    def by_split(self) -> dict[str, list[LabelledRow[Label]]]:
        """`train`, `dev`, `test` and `test_NAME` for each extra test."""
        splits = {"train": self.train, "dev": self.dev or [], "test": self.test or []}
        return {**splits, **{f"test_{name}": rows for name, rows in self.extra_tests.items()}}
