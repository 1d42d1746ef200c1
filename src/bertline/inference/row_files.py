"""Rows of files: input in any of the formats, and output that is written in blocks, which are joined at the end."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.errors import DataError
from bertline.foundation.parallel import batches
from bertline.foundation.text_files import numbered_lines
from bertline.kinds.base import InputColumn
from bertline.tasks.bad_rows import BadRow, require_whole_characters, text_in
from bertline.tasks.table_source import FORMATS_BY_ENDING, Record, TableLayout, read_records

RowFormat = Literal["txt", "csv", "tsv", "jsonl", "parquet"]
Row = dict[str, Any]

LINE_COLUMN, TEXT_COLUMN = "line", "text"
PLAIN_LAYOUT = TableLayout("auto", header=True, quoting=True, encoding="utf-8")
"""Default layout of input files."""
# Maximum size of a block: enough rows to sort by length, few enough to distribute over threads and write early.
_ROWS_TOGETHER = 512
_CHARACTERS_TOGETHER = 200_000
# Number of rows in a row group of a joined Parquet file.
_ROW_GROUP = 1 << 14
_BY_ENDING: dict[str, RowFormat] = {".txt": "txt", **FORMATS_BY_ENDING}


def format_of(path: Path) -> RowFormat:
    """Return the format of a file by its extension; `.gz` may follow all but `.parquet`.

    >>> format_of(Path("reviews.csv.gz"))
    'csv'

    Raises:
        DataError: The extension is not supported.
    """
    name = path.name.lower()
    kind = _BY_ENDING.get(Path(name.removesuffix(".gz")).suffix)
    if kind is None or (kind == "parquet" and name.endswith(".gz")):
        raise DataError(
            f"{path}: the ending says no format; expected .txt, .csv, .tsv, .jsonl (each also with .gz) or .parquet."
        )
    return kind


def format_read(path: Path, layout: TableLayout) -> RowFormat:
    """Return the format to read a file in: that of the layout, or with `auto` that of the extension."""
    return format_of(path) if layout.format == "auto" else layout.format


def read_rows(path: Path, layout: TableLayout) -> Iterator[Record]:
    """Yield the rows of a file with their line numbers.

    Each line of a `.txt`, blank ones included, is a row with the columns `line` (from 1) and `text`; blank lines of a
    table are no rows.

    Raises:
        DataError: The file is missing, undecodable or malformed; the message names file and line.
    """
    kind = format_read(path, layout)
    if not path.is_file():
        raise DataError(f"{path} is not a file. Correct its name.")
    return _text_rows(path, layout.encoding) if kind == "txt" else read_records(path, replace(layout, format=kind))


def _text_rows(path: Path, encoding: str) -> Iterator[Record]:
    has_text = False
    for number, line in numbered_lines(path, encoding):
        has_text = has_text or line.strip() != ""
        yield Record(f"{path.name}:{number}", {LINE_COLUMN: number, TEXT_COLUMN: line})
    if not has_text:
        raise DataError(f"{path} has no rows. Give a file with at least one text.")


def cell(record: Record, column: InputColumn) -> Any:
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
        try:
            require_whole_characters(value)
        except BadRow as bad:
            raise DataError(f"{record.where}: column {column.name!r}: {bad}. Fix or drop the row.") from bad
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
    if not column.may_be_empty and not "".join(value).strip():
        raise DataError(f"{record.where}: column {column.name!r} is empty. Fix or drop the row.")
    return value


def named_values(record: Record) -> Row:
    """Return the values of a row by column; columns without a header are named by their numbers."""
    return {str(name): value for name, value in record.values.items()}


def blocks_of(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Group records into blocks that depend on the input alone."""

    def num_characters(record: Record) -> int:
        return sum(len(value) for value in record.values.values() if isinstance(value, str | list))

    return batches(records, size=num_characters, most=_CHARACTERS_TOGETHER, most_items=_ROWS_TOGETHER)


@dataclass(frozen=True, slots=True)
class RowsOutput:
    """Form of an output: each block of rows is a file of its own, until all of them are joined.

    Each block of a `.gz` is a gzip member, and readers decode all members as one file.
    """

    target: Path
    columns: tuple[str, ...]
    """Columns of the first row, which all rows must have, except in JSON Lines."""
    schema: pa.Schema | None
    """Schema of a Parquet file; None for other formats."""

    @classmethod
    def after(cls, block: list[Record], target: Path, *, added: pa.Schema, schema: pa.Schema | None) -> RowsOutput:
        """Return the form of an output whose first rows of the input are these.

        `added` has the columns that are added to those of the input. Without the input's `schema`, which only a Parquet
        file has, the types of a Parquet output are inferred from the block.
        """
        columns = (*map(str, block[0].values), *added.names)
        if format_of(target) != "parquet":
            return cls(target, columns, None)
        if schema is not None:
            return cls(target, columns, pa.schema([*schema, *added]))
        with _types_named(target):
            inferred = pa.Table.from_pylist([named_values(record) for record in block]).schema
        return cls(target, columns, pa.schema([*inferred, *added]))

    def write_block(self, rows: list[Row], path: Path) -> None:
        """Write a block of rows, values by column, to a file; what differs from the first rows may not fit into it."""
        kind = format_of(self.target)
        for row in rows if kind != "jsonl" else ():
            if more := [name for name in row if name not in self.columns]:
                raise DataError(
                    f"{self.target}: a row has the column {more[0]!r}, the first rows have {', '.join(self.columns)}. "
                    "Rows of different columns fit into .jsonl only; choose that ending."
                )
        if kind == "parquet":
            with _types_named(self.target):
                pq.write_table(pa.Table.from_pylist(rows, schema=self.schema), path, compression="zstd")
            return
        # Types that JSON lacks, such as dates from Parquet, are written as text.
        text, as_json = io.StringIO(newline=""), partial(json.dumps, ensure_ascii=False, default=str)
        if kind == "jsonl":
            text.writelines(as_json(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(text, self.columns, delimiter="," if kind == "csv" else "\t")
            for row in rows:
                encoded = {name: as_json(value) for name, value in row.items() if isinstance(value, list | dict)}
                writer.writerow(row | encoded)
        path.write_bytes(self._compressed(text.getvalue()))

    def join(self, blocks: list[Path], path: Path) -> None:
        """Join the blocks into one file."""
        kind = format_of(self.target)
        if kind == "parquet":
            waiting: list[pa.Table] = []  # only a few blocks are in memory
            with pq.ParquetWriter(path, pq.read_schema(blocks[0]), compression="zstd") as tables:
                for block in blocks:
                    waiting.append(pq.read_table(block))
                    if block == blocks[-1] or sum(map(len, waiting)) >= _ROW_GROUP:
                        tables.write_table(pa.concat_tables(waiting))
                        waiting = []
            return
        with path.open("wb") as handle:
            if kind != "jsonl":
                header = io.StringIO(newline="")
                csv.writer(header, delimiter="," if kind == "csv" else "\t").writerow(self.columns)
                handle.write(self._compressed(header.getvalue()))
            for block in blocks:
                with block.open("rb") as part:
                    shutil.copyfileobj(part, handle)

    def _compressed(self, text: str) -> bytes:
        is_gzip = self.target.suffix.lower() == ".gz"
        return gzip.compress(text.encode(), mtime=0) if is_gzip else text.encode()


@contextmanager
def _types_named(target: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise DataError(
            f"{target}: {error}. Columns of mixed types fit into .jsonl only; choose that ending."
        ) from error
