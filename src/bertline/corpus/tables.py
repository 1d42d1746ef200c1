"""Rows of tables (CSV, TSV, JSON, Excel, Parquet), read alike for the corpus, for tasks and for predictions."""

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

import fsspec
import pyarrow.parquet as pq

from bertline.corpus.document import Dropped
from bertline.corpus.files import OnUndecodable, Part, fault, lines_before, naming, without_compression
from bertline.corpus.lines import Line, lines_with_text, read_lines, whole_file
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.delimited import check_header, quoted_rows, unquoted_rows
from bertline.foundation.errors import DataError
from bertline.foundation.progress import progress

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
_QUOTES = "If the file has quotes that do not pair up, set quoting to false, which takes them as text; else fix them."
_PARQUET_BUFFER_BYTES = 1 << 20


def check_delimiting(separator: str | None, max_fields: int | None, *, quoting: bool) -> None:
    """Check the options that split lines into fields.

    Raises:
        ValueError: `separator` is not one character, or `max_fields` is below 1 or combined with quoting.
    """
    if separator is not None and len(separator) != 1:
        raise ValueError(f"separator must be one character, found {separator!r}")
    if max_fields is not None and (max_fields < 1 or quoting):
        raise ValueError(
            f"max_fields must be at least 1 and is for files without quoting (quoting=false), found {max_fields} with "
            f"quoting: {str(quoting).lower()}"
        )


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


JSON_LINES = TableLayout(format="jsonl", header=True, quoting=True, encoding="utf-8")

NumberedRow = tuple[int, Mapping[Any, Any]]
"""Number of the first line (Parquet, Excel, a JSON array: of the row), from 1, and cells by column."""


def format_by_name(name: str) -> TableFormat | None:
    """Return the format that the ending of a file name tells, whatever its compression.

    >>> format_by_name("Rows.CSV.zst"), format_by_name("rows.txt")
    ('csv', None)
    """
    return FORMATS_BY_ENDING.get(Path(without_compression(name)).suffix)


def rows_of_table(
    part: Part, layout: TableLayout, policy: OnUndecodable, columns: Sequence[str] = ()
) -> Iterator[NumberedRow | Dropped]:
    """Yield the rows of a file or of a range of it, without blank lines, and what cannot be read of it.

    Args:
        part: Lines of JSON Lines, row groups of Parquet, or a whole file.
        layout: How the file is parsed; its format is given.
        policy: See `read_lines`. With `fail`, each row that is not valid (`documents/...`) has a `fault`.
        columns: Columns that are read of a Parquet file that has them; empty: all.

    Raises:
        DataError: The file is no table of the format, or a quote swallowed rows, whose number is unknown.
    """
    match layout.format:
        case "parquet":
            yield from _parquet_rows(part, policy, columns)
        case "json" | "jsonl":
            yield from _json_rows(part, layout, policy)
        case _:
            yield from _delimited_rows(part, layout, policy)


def _bad_row(
    part: Part, number: int, policy: OnUndecodable, reason: str, problem: str, text: str, advice: str = "Fix the row."
) -> Dropped:
    fails = (f"{part.path}:{lines_before(part) + number}: {problem}.", advice) if policy == "fail" else None
    return Dropped(f"documents/{reason}", f"{part.label}:{number}", text, note=problem, fault=fails)


def _json_rows(part: Part, layout: TableLayout, policy: OnUndecodable) -> Iterator[NumberedRow | Dropped]:
    lines: Iterable[Line | Dropped] = read_lines(part, layout.encoding, policy, newline="\n")
    if layout.format == "json" and part.stop is None:
        lines = list(lines)
        faults = [line for line in lines if isinstance(line, Dropped)]
        read = [line for line in lines if isinstance(line, Line)]
        values = _json_document(part, "".join(line.text for line in read))
        if values is not None:
            yield from faults
            if any(line.undecodable for line in read):
                yield Dropped("files/undecodable", part.name)
                return
            yield from (_json_object(part, number, policy, value, "") for number, value in enumerate(values, start=1))
            return
    for line in lines_with_text(part, lines):
        if isinstance(line, Dropped):
            yield line
        else:
            try:
                value = json.loads(line.text)
            except (ValueError, RecursionError) as error:
                problem = f"not JSON ({error}); each line must be one JSON object, found {line.text[:60]!r}"
                yield _bad_row(part, line.number, policy, "not_json", problem, line.text)
            else:
                yield _json_object(part, line.number, policy, value, line.text)


def _json_document(part: Part, content: str) -> list[Any] | None:
    """Return the rows of a JSON file: its array, or that which its object has as `data` or `annotations`; None: the
    file has a value a line."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError) as error:
        if getattr(error, "msg", "") == "Extra data":
            return None
        raise DataError(f"{part.path}:{getattr(error, 'lineno', 1)} is not JSON ({error}). Is it whole?") from error
    for key in ("data", "annotations"):
        if isinstance(whole, dict) and isinstance(whole.get(key), list):
            return cast("list[Any]", whole[key])
    return whole if isinstance(whole, list) else [whole]


def _json_object(part: Part, number: int, policy: OnUndecodable, value: Any, text: str) -> NumberedRow | Dropped:
    """Return a parsed JSON value as a row; of spaCy's pairs of text and object, the object with the `text`."""
    if isinstance(value, list) and [*map(type, value)] == [str, dict]:
        value = {"text": value[0], **value[1]}
    if isinstance(value, dict):
        return number, value
    problem = f"a JSON {type(value).__name__}, {str(value)[:60]!r}; each row must be one JSON object"
    return _bad_row(part, number, policy, "not_json", problem, text)


def _delimited_rows(part: Part, layout: TableLayout, policy: OnUndecodable) -> Iterator[NumberedRow | Dropped]:
    undecodable = False  # whether a line of the current row is
    waiting: list[Dropped] = []

    def texts() -> Iterator[str]:
        nonlocal undecodable
        # newline="" leaves line ends inside quoted fields to the csv module.
        for line in read_lines(part, layout.encoding, policy, newline="" if layout.quoting else "\n"):
            if isinstance(line, Dropped):
                waiting.append(line)
                continue
            undecodable = undecodable or line.undecodable
            yield line.text

    separator = layout.separator or ("\t" if layout.format == "tsv" else ",")
    rows: Iterable[tuple[int, int, list[Any]]]
    if layout.format == "xlsx":
        rows = _sheet(part.path)
    elif layout.quoting:
        rows = quoted_rows(texts(), separator, where=part.path, hint=_QUOTES)
    else:
        rows = unquoted_rows(texts(), separator, layout.max_fields)
    names: list[str] | None = None
    width: int | None = None
    for number, num_lines, cells in rows:
        yield from waiting
        waiting.clear()
        text = separator.join(map(str, cells))
        if names is None and layout.header:
            names = [str(cell).strip() for cell in cells]
            check_header(part.path, number, names)
            width = len(names)
        elif undecodable:
            yield Dropped("documents/undecodable", f"{part.label}:{number}", text)
        else:
            if layout.extra_fields == "ignore":
                cells = cells[:width]
            elif width is None:
                width = len(cells)
            if width in (None, len(cells)):
                yield number, dict(zip(names or range(len(cells)), cells, strict=True))
            else:
                first = "the first row" if names is None else f"the header ({', '.join(names[:20])})"
                problem = f"{len(cells)} fields, {first} has {width}"
                # A wrong width over several lines comes from an unbalanced quote, which may have
                # swallowed valid rows.
                if num_lines > 1:
                    raise DataError(f"{part.path}:{number}: {problem}, in a row over {num_lines} lines. {_QUOTES}")
                advice = (
                    "Fix the row, or set the separator that the file has; texts with separators stand in quotes. Of "
                    "the rows of a task, extra_fields=ignore reads the first fields alone."
                )
                yield _bad_row(part, number, policy, "wrong_width", problem, text, advice)
        undecodable = False
    yield from waiting


def _sheet(path: str) -> list[tuple[int, int, list[Any]]]:
    """Return the rows of the first sheet of an Excel file, numbered, without blank ones."""
    try:
        import pandas

        cells = pandas.read_excel(path, header=None, dtype=object, keep_default_na=False).to_numpy().tolist()
    except (ImportError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as .xlsx ({error}). Save the sheet as CSV.") from error
    return [(number, 1, row) for number, row in enumerate(cells, start=1) if any(cell != "" for cell in row)]


def parquet_file(part: Part) -> pq.ParquetFile:
    """Open a Parquet file, which may be in an object store."""
    # Not mapped into memory, where a file that shrinks would end the process; a page at a time, not
    # a row group.
    source = fsspec.open(part.path, "rb").open() if "://" in part.path else part.path
    return pq.ParquetFile(source, memory_map=False, buffer_size=_PARQUET_BUFFER_BYTES)


def _parquet_rows(part: Part, policy: OnUndecodable, columns: Sequence[str]) -> Iterator[NumberedRow | Dropped]:
    number = 0
    try:
        with parquet_file(part) as table:
            has_columns = columns and set(columns) <= set(table.schema_arrow.names)
            wanted = list(columns) if has_columns else None
            stop = table.num_row_groups if part.stop is None else part.stop
            for group in range(part.start, stop):  # one by one, so that a damaged one leaves those before it
                for batch in table.iter_batches(1_000, [group], wanted, use_threads=False):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
    except Exception as error:  # damaged data raises exceptions of Arrow, of the file and of what decodes values
        behind = f" of row group {part.start}" if part.start else ""
        problem = f"not a readable Parquet file from row {number + 1}{behind} on ({type(error).__name__}: {error})"
        yield fault(part, policy, "files/torn", problem, "Copy or write it again")


# Rows with their places, for tasks and predictions.


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table."""

    where: str
    """File and line, such as `train.tsv:17` (Parquet, Excel, a JSON array: row, from 1)."""
    values: dict[str | int, Any]
    """Cells by column name, or by column number from 0 if the file has no header."""

    @property
    def line(self) -> str:
        """Number of its first line."""
        return self.where.rpartition(":")[2]


def read_records(path: Path, layout: TableLayout, bad_rows: BadRows | None = None) -> Iterator[TableRow]:
    """Yield the rows of a CSV, TSV, JSON, Excel or Parquet file (compressed too, except the last two).

    Args:
        path: The file.
        layout: How the file is parsed.
        bad_rows: Collects rows with a wrong number of fields and lines that are not a JSON object; None makes them
            errors.

    Raises:
        DataError: The file is missing, damaged or undecodable, its format is unknown, quotes are unbalanced, or a row
            is invalid and invalid rows are errors. The message names the file and, where there is one, the line.
    """
    if layout.format == "auto":
        if (found := format_by_name(path.name)) is None:
            expected = f"Set it to {', '.join(get_args(TableFormat))}."
            raise DataError(f"{path}: the ending {path.suffix!r} tells no format. {expected}")
        layout = replace(layout, format=found)
    if bad_rows is None:
        errors = BadRows("error", option=None)
        yield from (row for row in read_records(path, layout, errors) if not errors.num_errors)
        errors.end()
        return
    part, is_json = whole_file(path), layout.format in ("json", "jsonl")
    with naming(str(path)):
        for item in rows_of_table(part, layout, "fail"):
            if not isinstance(item, Dropped):
                number, values = item
                row = TableRow(f"{path.name}:{number}", cast("dict[str | int, Any]", values))
                try:
                    if is_json:
                        require_whole_characters(values)
                    yield row
                except BadRow as bad:
                    bad_rows.report(bad.reason, f"{path}:{number}: {bad}.", bad.advice)
            elif item.fault is not None:
                scope, _, reason = item.reason.partition("/")
                if scope != "documents":
                    raise DataError(" ".join(item.fault))
                bad_rows.report(reason, *item.fault)


def require_whole_characters(value: Any) -> None:
    r"""Check that no string has a lone surrogate (`"\ud800"`), which no encoding can store and no tokenizer can read.

    Args:
        value: Any parsed JSON value; keys are checked too.

    Raises:
        BadRow: Reason `half_character`. The caller adds the place to the message.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise BadRow("half_character", f"it has {half!r}, which is half of a character (a lone surrogate)") from error


def parsed_records(
    path: Path, layout: TableLayout, bad_rows: BadRows, parse: Callable[[TableRow], Parsed]
) -> list[Parsed]:
    """Parse the rows of a file; `parse` raises `BadRow` for an invalid one, with a message without its place."""
    return parsed_rows(read_records(path, layout, bad_rows), str(path), bad_rows, parse)


def parsed_rows(
    rows: Iterable[TableRow], source: str, bad_rows: BadRows, parse: Callable[[TableRow], Parsed]
) -> list[Parsed]:
    """Parse rows of a source.

    Raises:
        DataError: A row is invalid and invalid rows are errors, or all rows are, which indicates a wrong configuration.
    """
    usable: list[Parsed] = []
    last = None
    for row in progress(rows, description=f"reading {Path(source).name}, rows", is_brief=True):
        try:
            usable.append(parse(row))
        except BadRow as bad:
            problem = f"{source}:{row.line}: {bad}."
            bad_rows.report(bad.reason, problem, bad.advice)
            last = f"{problem} {bad.advice}"
    if last is not None and not usable:
        bad_rows.end()
        raise DataError(f"{source}: no row can be used. The last one: {last}")
    return usable


def column_in(row: TableRow, column: str | int) -> str | int:
    """Return a column as the row names it: a number may be a name of digits."""
    return str(column) if isinstance(column, int) and column not in row.values else column


def value_in(row: TableRow, column: str | int, option: str = "") -> Any:
    """Return the value of a column; `option` is what names the column, for the message.

    Raises:
        BadRow: There is no such column.
    """
    column = column_in(row, column)
    if column not in row.values:
        existing = ", ".join(repr(name) for name in row.values) or "none"
        named = f" ({option})" if option else ""
        raise BadRow("missing_column", f"there is no column {column!r}{named}; the columns are {existing}")
    return row.values[column]
