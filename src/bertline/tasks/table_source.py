"""Labelled rows from tables (the user's own files, or a Hugging Face dataset), and readers of label cells."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from bertline.foundation.errors import DataError
from bertline.foundation.manifests import versions_of
from bertline.foundation.progress import say
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.cells import label_in, text_in
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.decoded_files import OptionNames
from bertline.tasks.rows import Label, LabelledRow, SourceRows, with_all_splits
from bertline.tasks.source_config import HubSourceConfig, TableSourceConfig
from bertline.tasks.source_files import split_files
from bertline.tasks.table_files import Record, TableLayout, read_records

SOURCE_OPTIONS = OptionNames(
    format="source.format", encoding="source.encoding", quoting="source.quoting", extra_fields="source.extra_fields"
)

Labels: TypeAlias = Callable[[object, str], Label]
"""Function from a cell and its place (for messages) to the label.

Raises:
    BadRow: The cell is not a valid label.
"""
ReadLabels = Callable[[re.Pattern[str] | None, str | None, list[str] | None], Labels[Label]]
"""Function that creates the label reader from `label_pattern`, `label_separator` and a dataset's class names."""


def _labelled(
    records: Iterable[Record],
    source: str,
    config: TableSourceConfig | HubSourceConfig,
    labels: Labels[Label],
    bad_rows: BadRows,
) -> list[LabelledRow[Label]]:
    """Return the labelled rows of the records of one file.

    Raises:
        DataError: A row is invalid and invalid rows are errors, or all rows are invalid, which indicates a wrong
            configuration of the source.
    """
    rows: list[LabelledRow[Label]] = []
    last: BadRow | None = None
    pair_column = config.text_pair_column
    for record in records:
        place = f"{source}:{record.line}"
        try:
            value = _cell(record, config.label_column, place, "label_column")
            pair = None if pair_column is None else _text(record, pair_column, place, "text_pair_column")
            text = _text(record, config.text_column, place, "text_column")
            column = config.cluster_column
            cluster = None if column is None else _text(record, column, place, "cluster_column")
            rows.append(LabelledRow(record.where, text, pair, labels(value, place), cluster))
        except BadRow as bad:
            bad_rows.found(bad)
            last = bad
    if last is not None and not rows:
        raise DataError(f"{source}: no row can be used. The last one: {last}")
    return rows


def table_rows(config: TableSourceConfig, read_labels: ReadLabels[Label]) -> SourceRows[Label]:
    """Read the files of a table source.

    Args:
        config: The source.
        read_labels: Creates the reader of the label column.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    folder = Path(config.path)
    if config.extra_tests and folder.is_file():
        raise DataError(f"source.path {folder} is a file, so source.extra_tests must be {{}} (or name its folder).")
    layout = TableLayout(
        config.format,
        config.header,
        config.quoting,
        config.encoding,
        separator=config.separator,
        max_fields=config.max_fields,
        extra_fields=config.extra_fields,
        options=SOURCE_OPTIONS,
    )
    bad_rows = BadRows(config.on_bad_row)
    pattern = None if config.label_pattern is None else re.compile(config.label_pattern)
    labels = read_labels(pattern, config.label_separator, None)

    def rows_of(path: Path) -> list[LabelledRow[Label]]:
        return _labelled(read_records(path, layout, bad_rows), str(path), config, labels, bad_rows)

    read = {split: rows_of(path) for split, path in split_files(config).items()}
    extra = {name: rows_of(folder / file) for name, file in config.extra_tests.items()}
    if bad_rows.blank_lines:
        say(f"{folder}: {bad_rows.blank_lines:,} blank lines are no rows")
    return SourceRows(read["train"], read.get("dev"), read.get("test"), bad_rows.dropped, extra)


def hub_rows(config: HubSourceConfig, read_labels: ReadLabels[Label]) -> SourceRows[Label]:
    """Read the splits of a Hugging Face dataset through `datasets`; only data files, never a dataset's code.

    Raises:
        DataError: The data is invalid. The message names split and row, the problem and how to fix it.
    """
    bad_rows = BadRows(config.on_bad_row)

    def rows_of(split: str) -> list[LabelledRow[Label]]:
        data = _dataset(config, split)
        # With several labels per row, the feature is a list of class labels.
        feature = data.features.get(config.label_column)
        names = getattr(getattr(feature, "feature", feature), "names", None)
        records = (
            Record(f"{split}:{number}", cast("dict[str | int, Any]", values))
            for number, values in enumerate(data, start=1)
        )
        return _labelled(records, f"{config.name}/{split}", config, read_labels(None, None, names), bad_rows)

    splits = (config.train_split, config.dev_split, config.test_split)
    train, dev, test = (None if split is None else rows_of(split) for split in splits)
    extra = {name: rows_of(split) for name, split in config.extra_tests.items()}
    return SourceRows(train or [], dev, test, bad_rows.dropped, extra)


def _dataset(config: HubSourceConfig, split: str) -> Any:
    # Imported here because it takes two seconds and most tasks do not need it.
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError

    try:
        return load_dataset(config.name, config.subset, split=split, revision=config.revision)
    except (DatasetNotFoundError, ConnectionError, ValueError, OSError, RuntimeError) as error:
        raise DataError(
            f"The dataset {config.name!r} cannot be read (subset {config.subset!r}, split {split!r}, "
            f"revision {config.revision!r}): {error}"
        ) from error


def _cell(record: Record, column: str | int, place: str, option: str) -> object:
    if column not in record.values:
        existing = ", ".join(repr(name) for name in record.values)
        hint = " Unlabelled test rows cannot be scored: set that file to null and a test is cut from train."
        message = f"{place}: there is no column {column!r} (source.{option}). The columns are {existing}."
        raise BadRow("missing_column", message + (hint if option == "label_column" else ""))
    return record.values[column]


def _text(record: Record, column: str | int, place: str, option: str) -> str:
    value = _cell(record, column, place, option)
    text = "" if value is None else text_in(value)
    # NaN, lists or booleans are mistakes and must not be trained on as text.
    if text is None:
        raise BadRow("wrong_type", f"{place}: column {column!r} is {value!r}, which is no text. Fix or remove the row.")
    if not (text := text.strip()):
        raise BadRow("empty_text", f"{place}: the text in column {column!r} is empty. Fix or remove the row.")
    return text


def read_table(
    source: TableSourceConfig | HubSourceConfig, config: BaseTaskConfig, read_labels: ReadLabels[Label]
) -> SourceRows[Label]:
    """Read a table or dataset, with missing splits cut from train; train is not shortened."""
    rows = table_rows(source, read_labels) if isinstance(source, TableSourceConfig) else hub_rows(source, read_labels)
    return with_all_splits(rows, config)


def table_versions(source: TableSourceConfig | HubSourceConfig) -> dict[str, str]:
    """Return the versions of the packages that read the source."""
    return versions_of("pyarrow") if isinstance(source, TableSourceConfig) else versions_of("datasets", "pyarrow")


@dataclass(frozen=True, slots=True)
class _Words:
    """What readers of labels as text share: class indices become class names, other cells what `label_in` reads."""

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
        return label_in(_matched(label, self.pattern, place))


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
        return tuple(dict.fromkeys(label_in(_matched(label, self.pattern, place)) for label in labels if label))


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
    return value.strip() if isinstance(value, str) else label_in(value)  # a pattern matches a text as it is written


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
