"""Rows of files: input in any of the formats, and output that is written block by block."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.corpus.files import without_compression
from bertline.corpus.lines import numbered_lines
from bertline.corpus.tables import TableLayout, TableRow, format_by_name, read_records, require_whole_characters
from bertline.foundation.bad_rows import BadRow
from bertline.foundation.errors import DataError
from bertline.foundation.files import file_written_atomically
from bertline.foundation.parallel import batches
from bertline.kinds.base import InputColumn
from bertline.tasks.cells import text_in

RowFormat = Literal["txt", "csv", "tsv", "jsonl", "json", "xlsx", "parquet"]
Row = dict[str, Any]

LINE_COLUMN, TEXT_COLUMN = "line", "text"
PLAIN_LAYOUT = TableLayout("auto", header=True, quoting=True, encoding="utf-8")
"""Default layout of input files."""
# Maximum size of a block: enough rows to sort by length, few enough to distribute over threads and write early.
_ROWS_TOGETHER = 512
_CHARACTERS_TOGETHER = 200_000
# Readers load a row group of Parquet at once, and each has a cost of its own.
_ROWS_OF_A_GROUP = 16_000
_MISFITS = (pa.ArrowException, TypeError, OverflowError)
_OTHER_FORMAT = "Rows of different columns or types fit into .jsonl, bytes into .parquet; choose that ending."
# What begins a formula in spreadsheets (OWASP, "CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def format_of(path: Path) -> RowFormat:
    """Return the format of a file by its extension; that of a compression may follow all but `.parquet` and `.xlsx`.

    >>> format_of(Path("reviews.csv.gz"))
    'csv'

    Raises:
        DataError: The extension is not supported.
    """
    name = without_compression(path.name)
    kind: RowFormat | None = "txt" if name.endswith(".txt") else format_by_name(name)
    if kind is None or (kind in ("parquet", "xlsx") and name != path.name.lower()):
        raise DataError(
            f"{path}: the ending says no format; expected .txt, .csv, .tsv, .json, .jsonl (also .gz), .xlsx, .parquet."
        )
    return kind


def format_read(path: Path, layout: TableLayout) -> RowFormat:
    """Return the format to read a file in: that of the layout, or with `auto` that of the extension."""
    return format_of(path) if layout.format == "auto" else layout.format


def require_output_format(target: Path) -> None:
    """Raise a `DataError` for a format that is only read."""
    if format_of(target) in ("txt", "json", "xlsx") or target.suffix.lower() in (".bz2", ".xz", ".zst"):
        raise DataError(
            f"{target}: rows with columns cannot be written as {target.suffix}; choose .jsonl, .csv, .tsv or .parquet."
        )


def file_rows(path: Path, layout: TableLayout) -> Iterator[TableRow]:
    """Yield the rows of a file with their line numbers.

    Each line of a `.txt`, blank ones included, is a row with the columns `line` (from 1) and `text`; blank lines of a
    table are no rows.

    Raises:
        DataError: The file is missing, undecodable or malformed; the message names file and line.
    """
    if format_read(path, layout) != "txt":
        return read_records(path, layout)
    lines = numbered_lines(path, layout.encoding)
    return (TableRow(f"{path.name}:{number}", {LINE_COLUMN: number, TEXT_COLUMN: line}) for number, line in lines)


def cell(record: TableRow, column: InputColumn) -> Any:
    """Return the value of a column: a text as it is, a number as `text_in` reads it, or a list of texts.

    Raises:
        DataError: The column is missing, its value has another type, or it is empty where that is not allowed; the
            message names file and line.
    """
    if column.name not in record.values:
        here = ", ".join(str(name) for name in record.values)
        raise DataError(
            f"{record.where}: no column {column.name!r}; found {here}. Name the column that has the {column.holds}."
        )
    value = record.values[column.name]
    if column.holds == "texts" and isinstance(value, str):
        with suppress(json.JSONDecodeError):
            value = json.loads(value)
    if column.holds == "text" and not isinstance(value, str):
        value = value if (text := text_in(value)) is None else text
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    fits, expected = {
        "text": (isinstance(value, str), "a text"),
        "texts": (is_list, "a list of texts (in CSV as JSON)"),
        "text or texts": (is_list or isinstance(value, str), "a text or a list of texts"),
    }[column.holds]
    if not fits:
        raise DataError(
            f"{record.where}: column {column.name!r} is {value!r}; expected {expected}. Fix or drop the row."
        )
    try:
        require_whole_characters(value)
    except BadRow as bad:
        raise DataError(f"{record.where}: column {column.name!r}: {bad}. Fix or drop the row.") from bad
    if not column.may_be_empty and not "".join(value).strip():
        raise DataError(f"{record.where}: column {column.name!r} is empty. Fix or drop the row.")
    return value


def named_values(record: TableRow) -> Row:
    """Return the values of a row by column; columns without a header are named by their numbers."""
    return {str(name): value for name, value in record.values.items()}


def blocks_of(records: Iterator[TableRow]) -> Iterator[list[TableRow]]:
    """Group records into blocks that depend on the input alone."""

    def num_characters(record: TableRow) -> int:
        return sum(len(value) for value in record.values.values() if isinstance(value, str | list))

    return batches(records, size=num_characters, most=_CHARACTERS_TOGETHER, most_items=_ROWS_TOGETHER)


_TYPES = {type(None): pa.null(), bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def _type_of(values: Sequence[Any]) -> pa.DataType:
    """Return the type of values that were read from JSON; that of objects has the keys of all. Unlike PyArrow, which
    makes a number of a truth value among fractions, only whole numbers are widened; an ArrowException: no type fits.
    """
    held = {*map(type, values)}
    types = [_TYPES[each] for each in held - {list, dict}]
    if list in held:
        types.append(pa.list_(_type_of([*chain.from_iterable(value for value in values if isinstance(value, list))])))
    if dict in held:
        objects = [value for value in values if isinstance(value, dict)]
        keys = dict.fromkeys(chain.from_iterable(objects))
        types.append(pa.struct([(key, _type_of([each.get(key) for each in objects])) for key in keys]))
    return _widest(types)


def _widest(types: Iterable[pa.DataType]) -> pa.DataType:
    schemas = [pa.schema([("", each)]) for each in (pa.null(), *types)]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0).type


def widened_schema(blocks: Iterable[list[TableRow]]) -> pa.Schema:
    """Return the columns of all rows, which were read from JSON, with the types that hold the values of all rows.

    Raises:
        DataError: No type holds the values of a column; the message names row and column.
    """
    widest = pa.struct([])

    def widen(*rows: Row) -> None:
        nonlocal widest
        widest = _widest([widest, _type_of(rows)])

    for block in blocks:
        rows = [named_values(record) for record in block]
        with _misfits_named(rows, block, lambda name, value: widen({name: value})):
            widen(*rows)
    return pa.schema([*widest])


@contextmanager
def _misfits_named(rows: list[Row], block: list[TableRow], fit: Callable[[str, Any], object]) -> Iterator[None]:
    """Name the first value for which `fit` fails, if what is done within the context fails for the rows of a block."""
    try:
        yield
    except _MISFITS as error:
        for record, row in zip(block, rows, strict=True):
            for name, value in row.items():
                try:
                    fit(name, value)
                except _MISFITS as misfit:
                    reason = str(misfit).rpartition("Unable to merge: ")[2].replace("Field  ", "it ")
                    raise DataError(
                        f"{record.where}: column {name!r} is {value!r:.80}, which cannot be written ({reason}). "
                        f"{_OTHER_FORMAT}"
                    ) from misfit
        raise DataError(f"in the rows from {block[0].where} on: {error}. {_OTHER_FORMAT}") from error


def _as_text(value: Any) -> str:
    """Return a value of a type that JSON lacks, such as a date from Parquet, as text."""
    if isinstance(value, bytes):
        raise TypeError("bytes are no text")
    return str(value)


_as_json = partial(json.dumps, ensure_ascii=False, default=_as_text)


@dataclass(frozen=True, slots=True)
class RowsOutput:
    """Form of an output, to which rows are written block by block.

    Each block of a `.gz` is a gzip member, and readers decode all members as one file.
    """

    target: Path
    columns: tuple[str, ...]
    """Columns of all rows; in JSON Lines, of the first row."""
    schema: pa.Schema | None
    """Schema of a Parquet file; None for other formats."""
    escapes_formulas: bool
    """Whether a `'` stands before texts of .csv and .tsv that a spreadsheet would compute."""

    def encoded(self, rows: list[Row], block: list[TableRow]) -> pa.Table | bytes:
        """Return the rows of a block of the input, values by column, as they stand in the file.

        Raises:
            DataError: A row has a column that the first row lacks and the format cannot add, or a value that the format
                cannot hold; the message names row and column.
        """
        kind = format_of(self.target)
        for record, row in zip(block, rows, strict=True) if kind != "jsonl" else ():
            if more := [name for name in row if name not in self.columns]:
                raise DataError(
                    f"{record.where}: column {more[0]!r} is not among those of the first row, which are those of "
                    f"{self.target}: {', '.join(self.columns)}. {_OTHER_FORMAT}"
                )
        if self.schema is not None:
            types = {field.name: field.type for field in self.schema}
            with _misfits_named(rows, block, lambda name, value: pa.array([value], types[name])):
                return pa.Table.from_pylist(rows, schema=self.schema)
        text = io.StringIO(newline="")
        with _misfits_named(rows, block, lambda name, value: _as_json(value)):
            if kind == "jsonl":
                text.writelines(_as_json(row) + "\n" for row in rows)
            else:
                self._writer(text).writerows([self._cell(row.get(name)) for name in self.columns] for row in rows)
        return self._compressed(text.getvalue())

    def _writer(self, text: io.StringIO) -> Any:
        return csv.writer(text, delimiter="," if format_of(self.target) == "csv" else "\t")

    def _cell(self, value: Any) -> Any:
        if isinstance(value, list | dict | bytes):
            return _as_json(value)
        is_formula = self.escapes_formulas and isinstance(value, str) and value.startswith(_FORMULA)
        return f"'{value}" if is_formula else value

    def write(self, blocks: Iterable[Any]) -> None:
        """Write encoded blocks; the file is there when all of them are."""
        with file_written_atomically(self.target) as temporary:
            if self.schema is not None:
                try:
                    tables = pq.ParquetWriter(temporary, self.schema, compression="zstd")
                except pa.ArrowNotImplementedError as error:  # an object that has no key in any row
                    raise DataError(f"{self.target}: {error}. {_OTHER_FORMAT}") from error
                with tables:
                    for group in batches(blocks, size=len, most=_ROWS_OF_A_GROUP):
                        tables.write_table(pa.concat_tables(group))
                return
            with temporary.open("wb") as handle:
                if format_of(self.target) != "jsonl":
                    header = io.StringIO(newline="")
                    self._writer(header).writerow(map(self._cell, self.columns))
                    handle.write(self._compressed(header.getvalue()))
                handle.writelines(blocks)

    def _compressed(self, text: str) -> bytes:
        is_gzip = self.target.suffix.lower() == ".gz"
        return gzip.compress(text.encode(), mtime=0) if is_gzip else text.encode()
