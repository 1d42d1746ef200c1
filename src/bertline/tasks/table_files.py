"""Read tables of people's own making: records one by one, each with the line it stands on."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.errors import DataError
from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.delimited_files import Delimiting, read_fields

TableFormat = Literal["csv", "tsv", "jsonl", "parquet"]

_FORMATS_BY_ENDING: dict[str, TableFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How the bytes of a table are to be read."""

    format: Literal["auto", "csv", "tsv", "jsonl", "parquet"]
    header: bool
    quoting: bool
    encoding: str
    separator: str | None = None
    """Between the fields of csv and tsv; None goes by the format."""
    max_fields: int | None = None
    """Of a line; the last one keeps the rest. None: no limit."""
    extra_fields: Literal["error", "ignore"] = "error"


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a table."""

    where: str
    """`train.tsv:17`: the file and the line (Parquet: the row, from 1)."""
    values: dict[str | int, Any]
    """By column name; by number from 0 where the file has no header."""


def read_records(path: Path, layout: TableLayout, bad_rows: BadRows | None = None) -> Iterator[Record]:
    """The rows of a CSV, TSV, JSONL or Parquet file, plain or `.gz`; blank lines are passed over.

    Args:
        path: The file.
        layout: How its bytes are to be read.
        bad_rows: Takes rows with a wrong number of fields and lines that are no JSON object; None makes them errors.

    Raises:
        DataError: Naming file and line: the file is missing or undecodable, quotes are unbalanced, a row is bad.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the task's path.")
    kind = _format_of(path) if layout.format == "auto" else layout.format
    if bad_rows is None:
        bad_rows = BadRows("error", option=None)
    if kind == "parquet":
        yield from _parquet_records(path)
        return
    try:
        if kind == "jsonl":
            yield from _json_records(path, layout.encoding, bad_rows)
        else:
            yield from _delimited_records(path, kind, layout, bad_rows)
    except UnicodeError as error:
        raise _undecodable(path, layout.encoding) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}). Copy it again.") from error


def _format_of(path: Path) -> TableFormat:
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if ending not in _FORMATS_BY_ENDING:
        raise DataError(
            f"{path}: the format cannot be told from the ending {ending!r}. "
            "Set source.format to csv, tsv, jsonl or parquet."
        )
    return _FORMATS_BY_ENDING[ending]


def _open_bytes(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _open_text(path: Path, encoding: str, *, newline: str) -> io.TextIOWrapper:
    try:
        name = codecs.lookup(encoding).name
    except LookupError as error:
        raise DataError(
            f"source.encoding is {encoding!r}, which Python does not know (utf-8, latin-1, ...)."
        ) from error
    handle = _open_bytes(path)
    # One byte a character: such an encoding reads UTF-8's mark as three letters, and all the rest as wrongly.
    if not name.startswith("utf") and handle.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
        handle.close()
        raise DataError(f"{path} starts with the mark of UTF-8, but source.encoding is {encoding!r}. Set it to utf-8.")
    handle.seek(0)
    return io.TextIOWrapper(handle, encoding=encoding, newline=newline)


def _undecodable(path: Path, encoding: str) -> DataError:
    """Say where: the reader works in blocks, so the whole file is decoded once more to find the byte."""
    with _open_bytes(path) as handle:
        content = handle.read()
    line = 1
    try:
        content.decode(encoding)
    except UnicodeDecodeError as error:
        line += content[: error.start].count(b"\n")
    return DataError(
        f"{path}:{line} is not text in {encoding}. Set source.encoding (latin-1, cp1252, utf-16, ...) or mend the file."
    )


def _delimited_records(path: Path, kind: TableFormat, layout: TableLayout, bad_rows: BadRows) -> Iterator[Record]:
    delimiting = Delimiting(
        separator=layout.separator or ("," if kind == "csv" else "\t"),
        header=layout.header,
        quoting=layout.quoting,
        max_fields=layout.max_fields,
        extra_fields=layout.extra_fields,
    )
    # newline="" leaves line ends inside quoted fields to the csv module; without quotes a row ends at "\n" alone.
    with _open_text(path, layout.encoding, newline="" if layout.quoting else "\n") as handle:
        for line, values in read_fields(path, handle, delimiting, bad_rows):
            yield Record(f"{path.name}:{line}", {**values})


def _json_records(path: Path, encoding: str, bad_rows: BadRows) -> Iterator[Record]:
    with _open_text(path, encoding, newline="\n") as handle:
        for line, content in enumerate(handle, start=1):
            content = content.removeprefix("\ufeff").strip()
            if not content:
                continue
            try:
                values = json.loads(content)
            except ValueError as error:
                message = f"{path}:{line} is not JSON ({error}). Each line must be one JSON object."
                bad_rows.found(BadRow("not_json", message))
                continue
            if not isinstance(values, dict):
                message = f"{path}:{line} is a JSON {type(values).__name__}; each line must be one JSON object."
                bad_rows.found(BadRow("not_json", message))
                continue
            yield Record(f"{path.name}:{line}", values)


def _parquet_records(path: Path) -> Iterator[Record]:
    try:
        file = pq.ParquetFile(path)
        row = 0
        for batch in file.iter_batches():
            for values in batch.to_pylist():
                row += 1
                yield Record(f"{path.name}:{row}", values)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} is not a whole Parquet file ({error}). Copy it again.") from error
