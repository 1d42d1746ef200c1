"""Labelled rows of a source, before labels are mapped to indices, and their splits without shared examples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bertline.foundation.seeds import seed_for
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_files import cut_by_key

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


def fewest_train_rows(config: BaseTaskConfig, available: int) -> int:
    """Return the number of rows of the smallest requested training set, which must be enough to learn from."""
    sizes = [size for size in (config.num_train_rows, *config.label_efficiency_rows) if size is not None]
    return min([available, *sizes])


def with_all_splits(source: SourceRows[Label], config: BaseTaskConfig) -> SourceRows[Label]:
    """Cut missing splits from the train rows, drop duplicates across splits, and shuffle train.

    A hash of its texts assigns a row to a split (see `cut_by_key`): equal examples stay together, and rows added later
    do not move others. A train row whose texts also occur in dev or a test set, or a dev row whose texts also occur in
    a test set, is dropped and counted. Test sets are not changed.
    """
    test = source.test
    train, dev = list(source.train), source.dev
    if test is None:
        test, train = cut_by_key(train, LabelledRow.content_key, "test", config.test_fraction, config.split_seed)
    if dev is None:
        dev, train = cut_by_key(train, LabelledRow.content_key, "dev", config.dev_fraction, config.split_seed)
    dropped = Counter(source.dropped)
    in_test = {row.content_key() for row in test}
    dev = _without(dev, in_test, "dev_row_also_in_test", dropped)
    train = _without(train, in_test | {row.content_key() for row in dev}, "train_row_also_in_dev_or_test", dropped)
    for name, rows in sorted(source.extra_tests.items()):
        keys = {row.content_key() for row in rows}
        dev = _without(dev, keys, f"dev_row_also_in_test_{name}", dropped)
        train = _without(train, keys, f"train_row_also_in_test_{name}", dropped)
    train.sort(key=lambda row: (seed_for(config.split_seed, "order", row.id), row.id))
    return SourceRows(train, dev, test, dropped, source.extra_tests)


def _without(
    rows: list[LabelledRow[Label]], keys: set[str], reason: str, dropped: Counter[str]
) -> list[LabelledRow[Label]]:
    kept = [row for row in rows if row.content_key() not in keys]
    dropped[reason] += len(rows) - len(kept)
    return kept


def num_rows_made(config: BaseTaskConfig) -> int | None:
    """Return the number of train rows to keep, that of the largest training set requested; None keeps all."""
    return None if config.num_train_rows is None else max(config.num_train_rows, *config.label_efficiency_rows, 0)


def trains_nothing(config: BaseTaskConfig) -> bool:
    """Return whether the task scores an encoder without fine-tuning, and so needs no train rows."""
    return config.fine_tuning.get("num_epochs") == 0
