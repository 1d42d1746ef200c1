"""Rows in and out of files, one after the other, so that a file of any size takes the same memory."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.errors import DataError, MachineError
from bertline.foundation.files import cannot_write
from bertline.tasks.table_files import Record, TableLayout, read_records

RowFormat = Literal["txt", "csv", "tsv", "jsonl", "parquet"]
Row = dict[str, Any]
WriteRows = Callable[[list[Row]], None]

TEXT_COLUMN = "text"
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


def read_rows(path: Path, *, encoding: str) -> Iterator[Record]:
    """The rows of a file, each with the line it stands on. A line of a `.txt` is a row with the column `text`.

    Blank lines are passed over.

    Raises:
        DataError: The file is missing, undecodable or malformed; file and line are named.
    """
    kind = format_of(path)
    if kind == "txt":
        return _text_lines(path, encoding)
    return read_records(path, TableLayout(format=kind, header=True, quoting=True, encoding=encoding))


def _text_lines(path: Path, encoding: str) -> Iterator[Record]:
    if not path.is_file():
        raise DataError(f"{path} is not a file. Correct the input's name.")
    line = 0
    try:
        with _open_bytes(path, "rb") as handle:
            for line, content in enumerate(handle, start=1):
                text = content.decode(encoding).removeprefix("\ufeff").rstrip("\r\n")
                if text.strip():
                    yield Record(f"{path.name}:{line}", {TEXT_COLUMN: text})
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{line} is not text in {encoding}. Name its encoding, or mend the line.") from error
    except (gzip.BadGzipFile, EOFError) as error:
        raise DataError(f"{path}:{line + 1}: the gzip file ends or breaks here ({error}). Copy it again.") from error


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
            handle = stack.enter_context(_open_bytes(temporary, "wb", compressed=path.suffix == ".gz"))
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


def _open_bytes(path: Path, mode: Literal["rb", "wb"], *, compressed: bool | None = None) -> IO[bytes]:
    if path.suffix == ".gz" if compressed is None else compressed:
        return cast(IO[bytes], gzip.open(path, mode))
    return path.open(mode)
