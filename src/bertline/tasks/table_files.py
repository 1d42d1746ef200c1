"""Read tables of people's own making: records one by one, each with the line it stands on."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.errors import DataError

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


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a table."""

    where: str
    """`train.tsv:17`: the file and the line (Parquet: the row, from 1)."""
    values: dict[str | int, Any]
    """By column name; by number from 0 where the file has no header."""


def read_records(path: Path, layout: TableLayout) -> Iterator[Record]:
    """The rows of a CSV, TSV, JSONL or Parquet file, plain or `.gz`; blank lines are passed over.

    Raises:
        DataError: Naming file and line: the file is missing or undecodable, a row has too many or too few fields,
            quotes are unbalanced, a line is not a JSON object.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the task's path.")
    kind = _format_of(path) if layout.format == "auto" else layout.format
    if kind == "parquet":
        yield from _parquet_records(path)
        return
    try:
        with _open_text(path, layout.encoding) as handle:
            if kind == "jsonl":
                yield from _json_records(path, handle)
            else:
                yield from _delimited_records(path, handle, "," if kind == "csv" else "\t", layout)
    except UnicodeDecodeError as error:
        raise _undecodable(path, layout.encoding) from error
    except (gzip.BadGzipFile, EOFError) as error:
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


def _open_text(path: Path, encoding: str) -> io.TextIOWrapper:
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise DataError(
            f"source.encoding is {encoding!r}, which Python does not know (utf-8, latin-1, ...)."
        ) from error
    # newline="" leaves line ends inside quoted fields to the csv module.
    return io.TextIOWrapper(_open_bytes(path), encoding=encoding, newline="")


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


def _delimited_records(path: Path, handle: IO[str], delimiter: str, layout: TableLayout) -> Iterator[Record]:
    csv.field_size_limit(1 << 30)
    if layout.quoting:
        reader = csv.reader(handle, delimiter=delimiter, strict=True)
    else:
        reader = csv.reader(handle, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    names: list[str | int] | None = None
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{path}:{line}: {error}. {_QUOTES_HINT}") from error
        if fields is None:
            return
        if not fields:
            continue
        if names is None and layout.header:
            names = [field.removeprefix("\ufeff").strip() for field in fields]
            _check_header(path, line, names)
            continue
        if names is not None and len(fields) != len(names):
            hint = _QUOTES_HINT if layout.quoting else "Mend the row."
            raise DataError(f"{path}:{line} has {len(fields)} fields, the header has {len(names)}. {hint}")
        if line == 1:
            fields[0] = fields[0].removeprefix("\ufeff")
        yield Record(f"{path.name}:{line}", dict(zip(names or range(len(fields)), fields, strict=True)))


_QUOTES_HINT = "If the file has quotes that do not pair up, set source.quoting to false; else mend the row."


def _check_header(path: Path, line: int, names: list[str | int]) -> None:
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}:{line}: the header names {', '.join(map(repr, twice))} twice. Rename one column.")


def _json_records(path: Path, handle: IO[str]) -> Iterator[Record]:
    for line, content in enumerate(handle, start=1):
        if not content.strip():
            continue
        try:
            values = json.loads(content.removeprefix("\ufeff"))
        except ValueError as error:
            raise DataError(f"{path}:{line} is not JSON ({error}). Each line must be one JSON object.") from error
        if not isinstance(values, dict):
            raise DataError(f"{path}:{line} is a JSON {type(values).__name__}; each line must be one JSON object.")
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
