"""Labelled rows of a source, before labels are mapped to indices, and their splits without shared examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_files import complete_splits, same_text

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
    cluster: str | None = None
    """Cluster of the row (see `StoredRows.clusters`), never distributed over splits that are cut; None: no cluster."""

    def content_key(self) -> str:
        """Return a key that is equal for rows with equal texts, ignoring case and white space.

        Example:
            >>> LabelledRow("a", "Sum of  squares", None, "x").content_key()
            'sum of squares'
        """
        return same_text(text for text in (self.text, self.text_pair) if text is not None)


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


def _classes(row: LabelledRow[Label]) -> tuple[str, ...]:
    return row.label if isinstance(row.label, tuple) else (str(row.label),)


def text_pairs_of(rows: list[LabelledRow[Label]]) -> list[str] | None:
    """Return the second texts; None if rows are single passages."""
    return [row.text_pair for row in rows if row.text_pair is not None] or None


def clusters_of(rows: Sequence[LabelledRow[Label]]) -> list[str] | None:
    """Return the cluster of each row; None if rows have none."""
    return [row.cluster for row in rows if row.cluster is not None] or None


def with_all_splits(source: SourceRows[Label], config: BaseTaskConfig) -> SourceRows[Label]:
    """Cut missing splits from the train rows, drop duplicates across splits, and shuffle train.

    A hash of its cluster, or else of its texts, assigns a row to a split, so that equal examples stay together, and
    each label has its share of each split (see `stratified_cut`). A train row whose texts also occur in dev or a test
    set, or a dev row whose texts also occur in a test set, is dropped and counted. Test sets are not changed.
    """
    found = {"train": list(source.train), "dev": source.dev, "test": source.test}
    splits = {split: rows for split, rows in found.items() if rows is not None}
    dropped = source.dropped + complete_splits(
        splits,
        config,
        same=LabelledRow.content_key,
        name="row",
        kept_together=lambda row: row.content_key() if row.cluster is None else row.cluster,
        labels=None if any(isinstance(row.label, float) for row in source.train) else _classes,
        # Public data sets have a test file; the wider bound leaves their splits as they always were.
        tolerance=0.2 if source.dev is None and source.test is None else 0.5,
    )
    for name, rows in sorted(source.extra_tests.items()):
        keys = {row.content_key() for row in rows}
        for split in ("dev", "train"):
            kept = [row for row in splits[split] if row.content_key() not in keys]
            dropped[f"{split}_row_also_in_test_{name}"] += len(splits[split]) - len(kept)
            splits[split] = kept
    return SourceRows(splits["train"], splits["dev"], splits["test"], dropped, source.extra_tests)
