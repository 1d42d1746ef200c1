"""Reader of text files and of labelled rows from tables: the user's own files, or a Hugging Face dataset."""

import dataclasses
import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bertline.corpus.files import open_dataset
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.delimited import check_header, quoted_rows, unquoted_rows
from bertline.foundation.errors import DataError
from bertline.foundation.manifests import versions_of
from bertline.foundation.progress import progress
from bertline.foundation.text_files import opened_text
from bertline.tasks.cells import json_object, label_in, list_in, text_in
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import HubSourceConfig, TableSourceConfig, check_delimiting
from bertline.tasks.source_files import Label, LabelledRow, LabelledSplits, split_files, with_all_splits

TableFormat = Literal["csv", "tsv", "jsonl", "json", "xlsx", "parquet"]
Parsed = TypeVar("Parsed")

FORMATS_BY_ENDING: dict[str, TableFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".xlsx": "xlsx",
    ".parquet": "parquet",
}
# A list that Python or pandas wrote into a cell of text.
_PRINTED_LIST = re.compile(r"""\s*(\[.*\]|[({]\s*['"].*[)}])\s*""", re.DOTALL)
_PEEKED = 1000  # characters
_QUOTES_HINT = "If the file has quotes that do not pair up, set quoting to false; else fix the row."


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How a table file is parsed; see `TableSourceConfig`."""

    format: TableFormat | Literal["auto"]
    header: bool
    quoting: bool
    encoding: str
    separator: str | None = None
    max_fields: int | None = None
    extra_fields: Literal["error", "ignore"] = "error"

    def __post_init__(self) -> None:
        check_delimiting(self.separator, self.max_fields, quoting=self.quoting)


JSON_LINES = TableLayout(format="jsonl", header=True, quoting=True, encoding="utf-8-sig")


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a table."""

    where: str
    """File and line, such as `train.tsv:17` (Parquet, Excel, a JSON array: row, from 1)."""
    values: dict[str | int, Any]
    """Cells by column name, or by column number from 0 if the file has no header."""

    @property
    def line(self) -> str:
        """Number of its first line."""
        return self.where.rpartition(":")[2]


def read_records(path: Path, layout: TableLayout, bad_rows: BadRows | None = None) -> Iterator[Record]:
    """Yield the rows of a CSV, TSV, JSON, Excel or Parquet file (`.gz` too, except the last two), without blank lines.

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
        raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the path.")
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    kind = FORMATS_BY_ENDING.get(ending) if layout.format == "auto" else layout.format
    if kind is None:
        raise DataError(f"{path}: the ending {ending!r} tells no format. Set it to {', '.join(get_args(TableFormat))}.")
    if bad_rows is None:
        errors = BadRows("error", option=None)
        yield from (record for record in read_records(path, layout, errors) if not errors.num_errors)
        errors.end()
        return
    if kind in ("parquet", "xlsx"):
        is_sheet = kind == "xlsx"
        yield from _named(path, _sheet(path), layout, bad_rows) if is_sheet else _parquet_records(path)
        return
    is_json = kind in ("json", "jsonl")
    # newline="" leaves line ends inside quoted fields to the csv module.
    newline = "" if layout.quoting and not is_json else "\n"
    with opened_text(path, layout.encoding, newline=newline) as handle:
        if is_json:
            yield from _json_records(path, handle, bad_rows, by_lines=kind == "jsonl")
        else:
            separator = layout.separator or ("," if kind == "csv" else "\t")
            lines = (
                quoted_rows(handle, separator, where=str(path), hint=_QUOTES_HINT)
                if layout.quoting
                else unquoted_rows(handle, separator, layout.max_fields)
            )
            yield from _named(path, lines, layout, bad_rows)


def parsed_records(
    path: Path, layout: TableLayout, bad_rows: BadRows, parse: Callable[[Record], Parsed]
) -> list[Parsed]:
    """Parse the rows of a file; `parse` raises `BadRow` for an invalid one, with a message without its place."""
    return parsed(read_records(path, layout, bad_rows), str(path), bad_rows, parse)


def parsed(
    records: Iterable[Record], source: str, bad_rows: BadRows, parse: Callable[[Record], Parsed]
) -> list[Parsed]:
    """Parse records of a source.

    Raises:
        DataError: A row is invalid and invalid rows are errors, or all rows are, which indicates a wrong configuration.
    """
    rows: list[Parsed] = []
    last = None
    for record in progress(records, description=f"reading {Path(source).name}, rows", is_brief=True):
        try:
            rows.append(parse(record))
        except BadRow as bad:
            problem = f"{source}:{record.line}: {bad}."
            bad_rows.report(bad.reason, problem, bad.advice)
            last = f"{problem} {bad.advice}"
    if last is not None and not rows:
        bad_rows.end()
        raise DataError(f"{source}: no row can be used. The last one: {last}")
    return rows


def column_in(record: Record, column: str | int) -> str | int:
    """Return a column as the record names it: a number may be a name of digits."""
    return str(column) if isinstance(column, int) and column not in record.values else column


def value_in(record: Record, column: str | int, option: str = "") -> Any:
    """Return the value of a column; `option` is what names the column, for the message.

    Raises:
        BadRow: There is no such column.
    """
    column = column_in(record, column)
    if column not in record.values:
        existing = ", ".join(repr(name) for name in record.values) or "none"
        named = f" ({option})" if option else ""
        raise BadRow("missing_column", f"there is no column {column!r}{named}; the columns are {existing}")
    return record.values[column]


def _json_records(path: Path, handle: IO[str], bad_rows: BadRows, *, by_lines: bool) -> Iterator[Record]:
    """Yield the rows of JSON Lines or of an array; `by_lines` expects lines, unless the file begins an array."""
    rows = None
    if not by_lines or handle.read(_PEEKED).lstrip("\ufeff \t\r\n").startswith("["):
        handle.seek(0)
        rows = _json_array(path, handle.read().removeprefix("\ufeff"))
    handle.seek(0)
    for number, each in enumerate(handle if rows is None else rows, start=1):
        if rows is None and not (each := each.removeprefix("\ufeff").strip()):
            continue
        try:
            values = json_object(each, is_line=rows is None)
        except BadRow as bad:
            bad_rows.report(bad.reason, f"{path}:{number}: {bad}.", bad.advice)
            continue
        yield from _by_sentences(Record(f"{path.name}:{number}", cast("dict[str | int, Any]", values)))


def _by_sentences(record: Record) -> Iterator[Record]:
    """Yield the row; of a document in the JSON of spaCy 2, a row for each sentence (`news.json:1.2`)."""
    paragraphs = record.values.get("paragraphs")
    try:
        sentences = [each["tokens"] for paragraph in paragraphs or () for each in paragraph["sentences"]]
        rows = [([token["orth"] for token in each], [token.get("ner") or "-" for token in each]) for each in sentences]
    except (KeyError, TypeError, AttributeError):  # paragraphs of something else
        rows = []
    if not rows:
        yield record
    for number, (words, tags) in enumerate(rows, start=1):
        yield Record(f"{record.where}.{number}", {"tokens": words, "ner": tags, "document": record.where})


def _json_array(path: Path, content: str) -> list[Any] | None:
    """Return the rows of a JSON file: its array, or that which its object has as `data` or `annotations`; None: the
    file has a value a line."""
    try:
        whole = json.loads(content)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return None
        raise DataError(f"{path}:{error.lineno} is not JSON ({error.msg}). Is the file whole?") from error
    for key in ("data", "annotations"):
        if isinstance(whole, dict) and isinstance(whole.get(key), list):
            return cast("list[Any]", whole[key])
    return whole if isinstance(whole, list) else [whole]


def _parquet_records(path: Path) -> Iterator[Record]:
    try:
        batches = pq.ParquetFile(path).iter_batches()
        for row, values in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), start=1):
            yield Record(f"{path.name}:{row}", values)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} is not a whole Parquet file ({error}). Copy it again.") from error


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


def _sheet(path: Path) -> list[tuple[int, int, list[Any]]]:
    """Return the rows of the first sheet of an Excel file, numbered, without blank ones."""
    try:
        import pandas

        cells = pandas.read_excel(path, header=None, dtype=object, keep_default_na=False).to_numpy().tolist()
    except ImportError as error:
        how = "Install both (pip install pandas openpyxl), or save the sheet as CSV."
        raise DataError(f"{path}: .xlsx files are read by pandas and openpyxl ({error}). {how}") from error
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a whole .xlsx file ({error}). Save it again.") from error
    return [(number, 1, row) for number, row in enumerate(cells, start=1) if any(cell != "" for cell in row)]


def _named(
    path: Path, lines: Iterable[tuple[int, int, list[Any]]], layout: TableLayout, bad_rows: BadRows
) -> Iterator[Record]:
    """Yield the rows of CSV, TSV and similar files. A quote that swallowed lines is an error even if invalid rows are
    skipped, because the number of lost rows is unknown."""
    names: list[str | int] | None = None
    width: int | None = None
    for line, num_lines, fields in lines:
        if line == 1:
            fields[0] = str(fields[0]).removeprefix("\ufeff")
        if names is None and layout.header:
            names = [str(field).strip() for field in fields]
            check_header(str(path), line, names)
            width = len(names)
            continue
        if layout.extra_fields == "ignore":
            fields = fields[:width]
        elif width is None:
            width = len(fields)
        if width is not None and len(fields) != width:
            first = "the header" if layout.header else "the first row"
            problem = f"{path}:{line} has {len(fields)} fields, {first} has {width}."
            advice = _QUOTES_HINT if layout.quoting else "Fix the row."
            # A wrong width over several lines comes from an unbalanced quote, which may have swallowed valid rows.
            if num_lines > 1:
                raise DataError(f"{problem} {advice}")
            if len(fields) < width:
                bad_rows.report("too_few_fields", problem, advice)
            else:
                advice += " extra_fields: ignore reads the first fields alone."
                bad_rows.report("too_many_fields", problem, advice)
            continue
        yield Record(f"{path.name}:{line}", dict(zip(names or range(len(fields)), fields, strict=True)))


ReadLabels = Callable[[re.Pattern[str] | None, str | None, list[str] | None], Callable[[object], Label]]
"""Function from `label_pattern`, `label_separator` and a dataset's class names to the reader of labels, which
raises `BadRow` for a cell that is none."""


def _labelled(
    records: Iterable[Record],
    source: str,
    config: TableSourceConfig | HubSourceConfig,
    labels: Callable[[object], Label],
    bad_rows: BadRows,
) -> list[LabelledRow[Label]]:
    def row(record: Record) -> LabelledRow[Label]:
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

    return parsed(records, source, bad_rows, row)


def _is_marked(record: Record, column: str | int) -> bool:
    mark = label_in(value := value_in(record, column, "source.label_columns"))
    if mark not in ("0", "1", "false", "true"):
        raise BadRow("no_mark", f"column {column!r} (source.label_columns) is {value!r}; expected 0, 1, true or false")
    return mark in ("1", "true")


def _text(record: Record, column: str | int, option: str) -> str:
    value = value_in(record, column, option)
    text = "" if value is None else text_in(value)
    # NaN, lists or booleans are mistakes and must not be trained on as text.
    if text is None:
        raise BadRow("wrong_type", f"column {column!r} is {value!r}, which is no text")
    if not text:
        raise BadRow("empty_text", f"the text in column {column!r} is empty")
    return text


def layout_of(config: TableSourceConfig) -> TableLayout:
    """Return how the files of a table source are parsed."""
    return TableLayout(**{field.name: getattr(config, field.name) for field in dataclasses.fields(TableLayout)})


def table_rows(config: TableSourceConfig, read_labels: ReadLabels[Label], bad_rows: BadRows) -> LabelledSplits[Label]:
    """Read the files of a table source."""
    folder, layout = Path(config.path), layout_of(config)
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
        records = (Record(f"{split}:{number}", cast(Any, values)) for number, values in enumerate(data, start=1))
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
                "Set multi_label: true if rows have several labels.",
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
