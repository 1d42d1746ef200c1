"""Rows in and out of files, one after the other, so that a file of any size takes the same memory."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.errors import DataError, MachineError
from bertline.foundation.files import cannot_write
from bertline.tasks.option_names import OptionNames
from bertline.tasks.table_files import Record, TableLayout, read_lines, read_records

RowFormat = Literal["txt", "csv", "tsv", "jsonl", "parquet"]
Row = dict[str, Any]
WriteRows = Callable[[list[Row]], None]

TEXT_COLUMN = "text"
PLAIN_LAYOUT = TableLayout("auto", header=True, quoting=True, encoding="utf-8")
"""How files are read of which nothing is said."""
_OPTIONS = OptionNames(format="format", encoding="encoding", quoting="quoting", extra_fields="extra_fields")
_BY_ENDING: dict[str, RowFormat] = {
    ".txt": "txt",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


def format_of(path: Path) -> RowFormat:
    """The format that a file's ending stands for; `.gz` may follow all but `.parquet`.

    >>> format_of(Path("reviews.csv.gz"))
    'csv'

    Raises:
        DataError: Another ending.
    """
    name = path.name.lower()
    kind = _BY_ENDING.get(Path(name.removesuffix(".gz")).suffix)
    if kind is None or (kind == "parquet" and name.endswith(".gz")):
        raise DataError(
            f"{path}: the ending says no format; expected .txt, .csv, .tsv, .jsonl (each also with .gz) or .parquet."
        )
    return kind


def format_read(path: Path, layout: TableLayout) -> RowFormat:
    """The format that a file is read in: the layout's, or that of its ending.

    Raises:
        DataError: Neither says one.
    """
    return format_of(path) if layout.format == "auto" else layout.format


def read_rows(path: Path, layout: TableLayout) -> Iterator[Record]:
    """The rows of a file, each with the line it stands on. A line of a `.txt` is a row with the column `text`.

    Blank lines are passed over.

    Raises:
        DataError: The file is missing, undecodable or malformed; file and line are named.
    """
    kind = format_read(path, layout)
    if not path.is_file():
        raise DataError(f"{path} is not a file. Correct its name.")
    if kind != "txt":
        return read_records(path, replace(layout, format=kind, options=_OPTIONS))
    lines = read_lines(path, layout.encoding, _OPTIONS)
    return (Record(line.where, {TEXT_COLUMN: line.values[0]}) for line in lines)


@contextmanager
def rows_written_atomically(path: Path, *, schema: pa.Schema | None = None) -> Iterator[WriteRows]:
    """Give a function that appends rows to a file, which appears under its name only when the block ends well.

    Args:
        path: Its ending says the format; `.txt` is none that rows can be written in.
        schema: Of a Parquet file, where it is known; else the first rows decide.

    Raises:
        DataError: Another ending, or rows whose columns are not those of the first.
        MachineError: The folder is full or cannot be written.
    """
    kind = format_of(path)
    if kind == "txt":
        raise DataError(f"{path}: rows with columns cannot be written as .txt; choose .jsonl, .csv, .tsv or .parquet.")
    temporary = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            handle = stack.enter_context(_open_for_writing(temporary, compressed=path.suffix == ".gz"))
            if kind == "parquet":
                yield _parquet_appender(handle, schema, path, stack)
            else:
                text = stack.enter_context(io.TextIOWrapper(handle, encoding="utf-8", newline=""))
                yield _json_appender(text) if kind == "jsonl" else _csv_appender(text, kind, path)
        temporary.replace(path)
    except OSError as error:
        raise MachineError(cannot_write(path, error)) from error
    finally:
        if path.parent.is_dir():
            temporary.unlink(missing_ok=True)


def _json_appender(handle: IO[str]) -> WriteRows:
    def append(rows: list[Row]) -> None:
        # Parquet has values that JSON has not, such as dates; they are written as text.
        handle.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)

    return append


def _csv_appender(handle: IO[str], kind: RowFormat, path: Path) -> WriteRows:
    writer: csv.DictWriter[str] | None = None

    def append(rows: list[Row]) -> None:
        nonlocal writer
        if writer is None and rows:
            writer = csv.DictWriter(handle, list(rows[0]), delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
        for row in rows:
            assert writer is not None
            _require_columns(row, list(writer.fieldnames), path)
            writer.writerow({name: _in_a_field(value) for name, value in row.items()})

    return append


def _in_a_field(value: Any) -> Any:
    """Lists and mappings as JSON; other values are written as they are."""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else value


def _parquet_appender(handle: IO[bytes], schema: pa.Schema | None, path: Path, stack: ExitStack) -> WriteRows:
    writer: pq.ParquetWriter | None = None

    def append(rows: list[Row]) -> None:
        nonlocal writer, schema
        try:
            if schema is None:
                schema = pa.Table.from_pylist(rows).schema
            for row in rows:
                _require_columns(row, schema.names, path)
            table = pa.Table.from_pylist(rows, schema=schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(
                f"{path}: {error}. Columns of mixed types fit into .jsonl only; choose that ending."
            ) from error
        if writer is None:
            writer = stack.enter_context(pq.ParquetWriter(handle, schema, compression="zstd"))
        writer.write_table(table)

    return append


def _require_columns(row: Row, columns: list[str], path: Path) -> None:
    more = [name for name in row if name not in columns]
    if more:
        raise DataError(
            f"{path}: a row has the column {more[0]!r}, the first rows have {', '.join(columns)}. "
            "Rows of different columns fit into .jsonl only; choose that ending."
        )


def _open_for_writing(path: Path, *, compressed: bool) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "wb")) if compressed else path.open("wb")
