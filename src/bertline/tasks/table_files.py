"""Reader of the user's tables: records with their line numbers, and errors for typical damage."""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.delimited import check_header, quoted_rows, unquoted_rows
from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRow, BadRows, json_object
from bertline.tasks.decoded_files import (
    GZIP_MAGIC,
    NO_OPTIONS,
    OptionNames,
    check_encoding,
    gzip_damage_named,
    undecodable,
)
from bertline.tasks.sniffing import beginning_of, guesses
from bertline.tasks.source_config import check_delimiting

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
    found = guesses(beginning_of(path, layout.encoding))
    if len(found) == 1 and found[0] != "conll":
        return found[0]
    if found == ["conll"]:
        why = "its lines look like CoNLL, a word with its tag each, which is no table (a task with source.kind: conll)"
    elif found:
        why = f"its lines can be {' or '.join(found)}"
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
