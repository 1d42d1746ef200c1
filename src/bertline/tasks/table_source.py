"""Labelled rows from tables (the user's own files, or a Hugging Face dataset), and readers of label cells."""

from __future__ import annotations

import codecs
import gzip
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bertline.corpus.files import open_dataset
from bertline.foundation.delimited import check_header, quoted_rows, unquoted_rows
from bertline.foundation.errors import DataError
from bertline.foundation.manifests import versions_of
from bertline.foundation.progress import say
from bertline.tasks.bad_rows import BadRow, BadRows, json_object, label_in, text_in
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.decoded_files import (
    GZIP_MAGIC,
    NO_OPTIONS,
    OptionNames,
    beginning_of,
    check_encoding,
    guesses,
    gzip_damage_named,
    undecodable,
)
from bertline.tasks.source_config import HubSourceConfig, TableSourceConfig, check_delimiting
from bertline.tasks.source_files import Label, LabelledRow, SourceRows, split_files, with_all_splits

# Reader of the user's tables: records with their line numbers, and errors for typical damage.

TableFormat = Literal["csv", "tsv", "jsonl", "parquet"]
Parsed = TypeVar("Parsed")

FORMATS_BY_ENDING: dict[str, TableFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How a table file is parsed."""

    format: TableFormat | Literal["auto"]
    header: bool
    quoting: bool
    encoding: str
    separator: str | None = None
    """Separator of fields of CSV and TSV; None takes the format's own."""
    max_fields: int | None = None
    """Maximum number of fields of a line; the last one keeps the rest. None means no limit."""
    extra_fields: Literal["error", "ignore"] = "error"
    options: OptionNames = NO_OPTIONS
    """Names of the user's options, for messages."""

    def __post_init__(self) -> None:
        check_delimiting(self.separator, self.max_fields, quoting=self.quoting)


JSON_LINES = TableLayout(format="jsonl", header=True, quoting=True, encoding="utf-8-sig")


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a table."""

    where: str
    """File and line, such as `train.tsv:17` (Parquet: row, from 1)."""
    values: dict[str | int, Any]
    """Cells by column name, or by column number from 0 if the file has no header."""

    @property
    def line(self) -> str:
        """Number of its first line."""
        return self.where.rpartition(":")[2]


def read_records(path: Path, layout: TableLayout, bad_rows: BadRows | None = None) -> Iterator[Record]:
    """Yield the rows of a CSV, TSV, JSONL or Parquet file (`.gz` too, except Parquet). Blank lines are skipped.

    Args:
        path: The file.
        layout: How the file is parsed.
        bad_rows: Collects rows with a wrong number of fields and lines that are not a JSON object; None makes them
            errors.

    Raises:
        DataError: The file is missing, damaged or undecodable, its format is unknown, quotes are unbalanced, or a row
            is invalid and invalid rows are errors. The message names the file and, where there is one, the line.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the task's path.")
    kind = _format_of(path, layout) if layout.format == "auto" else layout.format
    if bad_rows is None:
        bad_rows = BadRows("error", option=None)
    if kind == "parquet":
        yield from _parquet_records(path)
        return
    try:
        with gzip_damage_named(path):
            if kind == "jsonl":
                yield from _json_records(path, layout, bad_rows)
            else:
                separator = layout.separator or ("," if kind == "csv" else "\t")
                yield from _delimited_records(path, separator, layout, bad_rows)
    except UnicodeError as error:
        # The reader decodes in blocks, so the whole file is decoded again to find the line.
        with gzip_damage_named(path), _open_bytes(path) as handle:
            content = handle.read()
        raise undecodable(path, content, layout.encoding, layout.options) from error


def parsed_records(
    path: Path, layout: TableLayout, bad_rows: BadRows, parse: Callable[[Record], Parsed]
) -> list[Parsed]:
    """Parse the rows of a file; `parse` raises `BadRow` for an invalid one."""
    found = []
    for record in read_records(path, layout, bad_rows):
        try:
            found.append(parse(record))
        except BadRow as bad:
            bad_rows.report(bad.reason, f"{path}:{record.line}: {bad}. Fix or remove the row.")
    return found


def value_in(record: Record, column: str, option: str = "") -> Any:
    """Return the value of a column; `option` is what names the column, for the message.

    Raises:
        BadRow: There is no such column.
    """
    if column not in record.values:
        existing = ", ".join(repr(name) for name in record.values) or "none"
        named = f" ({option})" if option else ""
        raise BadRow("missing_column", f"there is no column {column!r}{named}; the columns are {existing}")
    return record.values[column]


def read_lines(path: Path, encoding: str, options: OptionNames) -> Iterator[Record]:
    """Yield the lines of a text file, plain or `.gz`, as records with a single column 0.

    Raises:
        DataError: See `read_records`.
    """
    # A text file is a table with one unnamed column: max_fields=1 keeps lines whole.
    layout = TableLayout("tsv", header=False, quoting=False, encoding=encoding, max_fields=1, options=options)
    return read_records(path, layout)


def _format_of(path: Path, layout: TableLayout) -> TableFormat:
    """Return the format by the ending of the name or, for other endings (`.txt`, `.data`, none), by the first lines."""
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if ending in FORMATS_BY_ENDING:
        return FORMATS_BY_ENDING[ending]
    formats = guesses(beginning_of(path, layout.encoding))
    if len(formats) == 1 and formats[0] != "conll":
        return formats[0]
    if formats == ["conll"]:
        why = "its lines look like CoNLL, a word with its tag each, which is no table (a task with source.kind: conll)"
    elif formats:
        why = f"its lines can be {' or '.join(formats)}"
    else:
        why = "its lines are neither JSON objects nor have they as many fields each by tabs or commas"
    option = layout.options.format
    way_out = f"Set {option} to" if option is not None else "Let it end in"
    raise DataError(
        f"{path}: the format cannot be told from the ending {ending!r}, and {why}. {way_out} csv, "
        "tsv, jsonl or parquet."
    )


def _open_bytes(path: Path) -> IO[bytes]:
    with path.open("rb") as handle:
        is_gzip = path.suffix == ".gz" or handle.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return cast(IO[bytes], gzip.open(path, "rb")) if is_gzip else path.open("rb")


def _open_text(path: Path, layout: TableLayout, *, newline: str) -> io.TextIOWrapper:
    with _open_bytes(path) as handle:
        check_encoding(path, layout.encoding, handle.read(len(codecs.BOM_UTF8)), layout.options)
    return io.TextIOWrapper(_open_bytes(path), encoding=layout.encoding, newline=newline)


def _json_records(path: Path, layout: TableLayout, bad_rows: BadRows) -> Iterator[Record]:
    with _open_text(path, layout, newline="\n") as handle:
        for line, content in enumerate(handle, start=1):
            content = content.removeprefix("\ufeff").strip()
            if not content:
                bad_rows.blank_lines += 1
                continue
            try:
                values = json_object(content)
            except BadRow as bad:
                bad_rows.report(bad.reason, f"{path}:{line}: {bad}. Fix or remove the row.")
                continue
            yield Record(f"{path.name}:{line}", cast("dict[str | int, Any]", values))


def _parquet_records(path: Path) -> Iterator[Record]:
    try:
        batches = pq.ParquetFile(path).iter_batches()
        for row, values in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), start=1):
            yield Record(f"{path.name}:{row}", values)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} is not a whole Parquet file ({error}). Copy it again.") from error


def _delimited_records(path: Path, separator: str, layout: TableLayout, bad_rows: BadRows) -> Iterator[Record]:
    """Yield the rows of CSV, TSV and similar files. A quote that swallowed lines is an error even if invalid rows are
    skipped, because the number of lost rows is unknown."""
    # newline="" leaves line ends inside quoted fields to the csv module; without quoting a row ends only at "\n".
    with _open_text(path, layout, newline="" if layout.quoting else "\n") as handle:
        yield from _rows_of_fields(path, handle, separator, layout, bad_rows)


def _rows_of_fields(
    path: Path, handle: IO[str], separator: str, layout: TableLayout, bad_rows: BadRows
) -> Iterator[Record]:
    lines = (
        quoted_rows(handle, separator, where=str(path), hint=_quotes_hint(layout.options))
        if layout.quoting
        else unquoted_rows(handle, separator, layout.max_fields)
    )
    names: list[str | int] | None = None
    width: int | None = None
    expected = 1
    for line, num_lines, fields in lines:
        bad_rows.blank_lines += line - expected
        expected = line + num_lines
        if line == 1:
            fields[0] = fields[0].removeprefix("\ufeff")
        if names is None and layout.header:
            names = [field.strip() for field in fields]
            check_header(str(path), line, names)
            width = len(names)
            continue
        if width is None and layout.extra_fields == "error":
            width = len(fields)
        if width is not None and len(fields) != width:
            if len(fields) < width or layout.extra_fields == "error":
                bad = _wrong_width(path, line, len(fields), width, layout)
                # A wrong width over several lines comes from an unbalanced quote, which may have swallowed valid rows.
                if num_lines > 1:
                    raise DataError(str(bad))
                bad_rows.found(bad)
                continue
            fields = fields[:width]
        yield Record(f"{path.name}:{line}", dict(zip(names or range(len(fields)), fields, strict=True)))


def _wrong_width(path: Path, line: int, found: int, width: int, layout: TableLayout) -> BadRow:
    first = "the header" if layout.header else "the first row"
    hint = _quotes_hint(layout.options) if layout.quoting else "Fix the row."
    if found > width and layout.options.extra_fields is not None:
        hint += f" {layout.options.extra_fields}: ignore reads the first fields alone."
    return BadRow(
        "too_many_fields" if found > width else "too_few_fields",
        f"{path}:{line} has {found} fields, {first} has {width}. {hint}",
    )


def _quotes_hint(options: OptionNames) -> str:
    if options.quoting is None:
        return "A quote that begins a field has to end it, and one inside of such a field is written twice; fix it."
    return f"If the file has quotes that do not pair up, set {options.quoting} to false; else fix the row."


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
            column = config.group_column
            group = None if column is None else _group(record, column, place)
            rows.append(LabelledRow(record.where, text, pair, labels(value, place), group))
        except BadRow as bad:
            bad_rows.found(bad)
            last = bad
    if last is not None and not rows:
        raise DataError(f"{source}: no row can be used. The last one: {last}")
    return rows


def layout_of(config: TableSourceConfig) -> TableLayout:
    """Return how the files of a table source are parsed."""
    return TableLayout(
        config.format,
        config.header,
        config.quoting,
        config.encoding,
        separator=config.separator,
        max_fields=config.max_fields,
        extra_fields=config.extra_fields,
        options=SOURCE_OPTIONS,
    )


def table_rows(config: TableSourceConfig, read_labels: ReadLabels[Label]) -> SourceRows[Label]:
    """Read the files of a table source.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    folder = Path(config.path)
    if config.extra_tests and folder.is_file():
        raise DataError(f"source.path {folder} is a file, so source.extra_tests must be {{}} (or name its folder).")
    layout, bad_rows = layout_of(config), BadRows(config.on_bad_row)
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
    try:
        return open_dataset(config, split, streaming=False)
    except Exception as error:  # the hub client raises exceptions of many libraries
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


def _group(record: Record, column: str | int, place: str) -> str:
    if not (group := label_in(_cell(record, column, place, "group_column"))):
        raise BadRow(
            "empty_group",
            f"{place}: the group in column {column!r} (source.group_column) is empty, so its split cannot be told. "
            "Fix or remove it.",
        )
    return group


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
    match = pattern.search(label)
    if match is None or not match[1]:
        raise BadRow(
            "label_without_pattern",
            f"{place}: the label {label!r} does not match source.label_pattern {pattern.pattern!r}. Fix the row or "
            "the pattern.",
        )
    return match[1]
