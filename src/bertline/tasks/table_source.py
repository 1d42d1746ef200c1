"""Labelled rows of tables: the user's own files, or a Hugging Face dataset."""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bertline.corpus.files import open_dataset
from bertline.corpus.tables import TableLayout, TableRow, parsed_rows, read_records, value_in
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.errors import DataError
from bertline.foundation.manifests import versions_of
from bertline.tasks.cells import label_in, list_in, text_in
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import HubSourceConfig, TableSourceConfig
from bertline.tasks.source_files import Label, LabelledRow, LabelledSplits, split_files, with_all_splits

# A list that Python or pandas wrote into a cell of text.
_PRINTED_LIST = re.compile(r"""\s*(\[.*\]|[({]\s*['"].*[)}])\s*""", re.DOTALL)


def class_names_in(path: Path, column: str | int | None) -> list[str] | None:
    """Return the names of the classes of a column that `datasets` wrote into the metadata of a Parquet file."""
    try:
        metadata = pq.read_schema(path).metadata or {}
    except pa.ArrowInvalid:  # another format
        return None
    return class_names(
        json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {}).get(column, {})
    )


def class_names(feature: Any) -> list[str] | None:
    """Return the names of a class label of `datasets`, or of a list of them, in its features as dictionaries."""
    feature = feature[0] if isinstance(feature, list) else feature
    feature = feature.get("feature", feature)
    return feature["names"] if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None


def named_class(value: Any, names: list[str]) -> Any:
    """Return the name of a class by its number, None for a negative number, and of a list those of all its numbers."""
    if isinstance(value, list | tuple | np.ndarray):
        return [named_class(each, names) for each in value]
    return value if value is None else names[value] if 0 <= value < len(names) else None


ReadLabels = Callable[[re.Pattern[str] | None, str | None, list[str] | None], Callable[[object], Label]]
"""Function from `label_pattern`, `label_separator` and a dataset's class names to the reader of labels, which
raises `BadRow` for a cell that is none."""


def _labelled(
    records: Iterable[TableRow],
    source: str,
    config: TableSourceConfig | HubSourceConfig,
    labels: Callable[[object], Label],
    bad_rows: BadRows,
) -> list[LabelledRow[Label]]:
    def row(record: TableRow) -> LabelledRow[Label]:
        if (marks := getattr(config, "label_columns", None)) is not None:
            value: object = [str(column) for column in marks if _is_marked(record, column)]
        else:
            value = value_in(record, cast("str | int", config.label_column), "source.label_column")
        pair, column = config.text_pair_column, config.group_column
        group = None if column is None else label_in(value_in(record, column, "source.group_column"))
        if group == "":
            raise BadRow("empty_group", f"the group in column {column!r} (source.group_column) is empty")
        return LabelledRow(
            record.where,
            _text(record, config.text_column, "source.text_column"),
            None if pair is None else _text(record, pair, "source.text_pair_column"),
            labels(value),
            group,
        )

    return parsed_rows(records, source, bad_rows, row)


def _is_marked(record: TableRow, column: str | int) -> bool:
    mark = label_in(value := value_in(record, column, "source.label_columns"))
    if mark not in ("0", "1", "false", "true"):
        raise BadRow("no_mark", f"column {column!r} (source.label_columns) is {value!r}; expected 0, 1, true or false")
    return mark in ("1", "true")


def _text(record: TableRow, column: str | int, option: str) -> str:
    value = value_in(record, column, option)
    text = "" if value is None else text_in(value)
    # NaN, lists or booleans are mistakes and must not be trained on as text.
    if text is None:
        raise BadRow("wrong_type", f"column {column!r} is {value!r}, which is no text")
    if not text:
        raise BadRow("empty_text", f"the text in column {column!r} is empty")
    return text


def table_layout(config: TableSourceConfig) -> TableLayout:
    """Return how the files of a table source are parsed."""
    return TableLayout(**{field.name: getattr(config, field.name) for field in dataclasses.fields(TableLayout)})


def table_rows(config: TableSourceConfig, read_labels: ReadLabels[Label], bad_rows: BadRows) -> LabelledSplits[Label]:
    """Read the files of a table source."""
    folder, layout = Path(config.path), table_layout(config)
    if config.extra_tests and folder.is_file():
        raise DataError(f"source.path {folder} is a file, so source.extra_tests must be {{}} (or name its folder).")
    pattern = None if config.label_pattern is None else re.compile(config.label_pattern)

    def rows_of(path: Path) -> list[LabelledRow[Label]]:
        labels = read_labels(pattern, config.label_separator, class_names_in(path, config.label_column))
        return _labelled(read_records(path, layout, bad_rows), str(path), config, labels, bad_rows)

    files = split_files(config) | {f"test_{name}": folder / file for name, file in config.extra_tests.items()}
    return {split: rows_of(path) for split, path in files.items()}


def hub_rows(config: HubSourceConfig, read_labels: ReadLabels[Label], bad_rows: BadRows) -> LabelledSplits[Label]:
    """Read the splits of a Hugging Face dataset through `datasets`; only data files, never a dataset's code."""

    def rows_of(split: str) -> list[LabelledRow[Label]]:
        try:
            data = open_dataset(config, split, streaming=False)
        except Exception as error:  # the hub client raises exceptions of many libraries
            raise DataError(
                f"The dataset {config.name!r} cannot be read (subset {config.subset!r}, split {split!r}, "
                f"revision {config.revision!r}): {error}"
            ) from error
        # With several labels per row, the feature is a list of class labels.
        names = class_names(data.features.to_dict().get(config.label_column, {}))
        records = (TableRow(f"{split}:{number}", cast(Any, values)) for number, values in enumerate(data, start=1))
        return _labelled(records, f"{config.name}/{split}", config, read_labels(None, None, names), bad_rows)

    named = {"train": config.train_split, "dev": config.dev_split, "test": config.test_split}
    named |= {f"test_{name}": split for name, split in config.extra_tests.items()}
    return {split: rows_of(name) for split, name in named.items() if name is not None}


def read_table(
    source: TableSourceConfig | HubSourceConfig, config: BaseTaskConfig, read_labels: ReadLabels[Label]
) -> tuple[LabelledSplits[Label], Counter[str]]:
    """Read a table or dataset, with missing splits cut from train, and count dropped rows; train is not shortened."""
    bad_rows = BadRows(source.on_bad_row)
    read: Callable[..., LabelledSplits[Label]] = table_rows if isinstance(source, TableSourceConfig) else hub_rows
    splits = read(source, read_labels, bad_rows)
    bad_rows.end()
    return with_all_splits(splits, config, bad_rows.dropped), bad_rows.dropped


def table_versions(source: TableSourceConfig | HubSourceConfig) -> dict[str, str]:
    """Return the versions of the packages that read the source."""
    return versions_of("pyarrow") if isinstance(source, TableSourceConfig) else versions_of("datasets", "pyarrow")


@dataclass(frozen=True, slots=True)
class SeveralLabels:
    """Reader of zero or more labels per row, from a list or from text with separators.

    Class indices become class names, other cells what `label_in` reads.
    """

    pattern: re.Pattern[str] | None
    """Regular expression whose first group is the label; None takes the whole cell. Each label of a row must match."""
    separator: str | None
    """Separator of several labels in a text; None reads a text as one label."""
    names: list[str] | None
    """Class names of a dataset by index; None if cells are the labels themselves."""

    def word(self, value: object) -> str:
        """Return the label of one value, empty if it is missing; `pattern` matches a text as it is written."""
        if self.names is not None and isinstance(value, int | np.integer) and not isinstance(value, bool):
            if not 0 <= value < len(self.names):
                raise BadRow(
                    "unknown_label",
                    f"the label is {value}, and there are {len(self.names)} classes",
                    "A split without labels cannot be scored: set it to null in the task's source, and it is cut from "
                    "train.",
                )
            word = self.names[int(value)]
        elif isinstance(value, dict | list | tuple | np.ndarray):
            raise BadRow(
                "unknown_label",
                f"the label is {value!r:.80}; expected a word or a number",
                "Spans, such as Doccano's, are for a token_classification.",
            )
        else:
            word = value.strip() if isinstance(value, str) else label_in(value)
        return label_in(_matched(word, self.pattern)) if word else ""

    def __call__(self, value: object) -> tuple[str, ...]:
        """Return the labels of a cell in order, without duplicates. Numbers in a list are labels if none repeats.

        Raises:
            BadRow: The cell is no list of names; a label is an unknown class index or does not match the pattern.
        """
        value = list_in(value) if self.pattern is None else value
        values: Iterable[object] = [value]
        if is_list := isinstance(value, list | tuple | np.ndarray):
            values = value
        elif isinstance(value, str) and self.separator is not None:
            values = value.split(self.separator)
        labels = [label for each in values if (label := self.word(each))]
        numbers = [each for each in values if isinstance(each, int | float | np.number | np.bool_) and each == each]
        are_whole = all(not isinstance(each, bool | np.bool_) and float(each).is_integer() for each in numbers)
        are_ids = is_list and are_whole and len(numbers) == len(set(numbers))
        is_printed = isinstance(value, str) and self.pattern is None and _PRINTED_LIST.fullmatch(value)
        if is_printed or (self.names is None and numbers and not are_ids):
            raise BadRow(
                "wrong_type",
                f"the labels are {value!r:.80}, which is no list of names",
                "Write the names of a row's labels as a list (JSONL, Parquet), or as text with source.label_separator.",
            )
        return tuple(dict.fromkeys(labels))


class OneLabel(SeveralLabels):
    """Reader of one label per row; it does not use the separator."""

    def __call__(self, value: object) -> str:  # type: ignore[override]
        """Return the label of a cell.

        Raises:
            BadRow: The cell is empty, a list or an unknown class index, or does not match the pattern.
        """
        if isinstance(value, list | tuple | np.ndarray) and not any(isinstance(each, list | dict) for each in value):
            raise BadRow(
                "several_labels",
                f"the label is a list ({value!r:.80})",
                "Set multi_label=true if rows have several labels.",
            )
        if not (label := self.word(value)):
            raise BadRow("empty_label", "the label is empty")
        return label


@dataclass(frozen=True, slots=True)
class ANumber:
    """Reader of one number per row, within the bounds of a scale."""

    low: float
    high: float
    pattern: re.Pattern[str] | None = None
    """Regular expression whose first group is the number; None takes the whole cell."""

    def __call__(self, value: object) -> float:
        """Return the number of a cell.

        Raises:
            BadRow: The cell is empty, not a number or outside the scale, or does not match the pattern.
        """
        cell = "" if value is None or value != value else str(value).strip()
        if not cell:
            raise BadRow("empty_label", "the number is empty")
        cell = _matched(cell, self.pattern)
        try:
            number = math.nan if isinstance(value, bool) else float(cell)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise BadRow("not_a_number", f"{cell!r} is no number", "Is source.label_column the right column?")
        if not self.low <= number <= self.high:
            scale = f"from {self.low:g} to {self.high:g} (the task's low and high)"
            raise BadRow("number_outside_the_scale", f"{cell} is not on the scale {scale}")
        return number


def _matched(label: str, pattern: re.Pattern[str] | None) -> str:
    if pattern is None:
        return label
    match = pattern.search(label)
    if match is None or not match[1]:
        raise BadRow(
            "label_without_pattern", f"the label {label!r} does not match source.label_pattern {pattern.pattern!r}"
        )
    return match[1]
