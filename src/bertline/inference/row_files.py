"""Input rows: files in any of the formats, blocks of rows with a digest of all so far, and checked columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from bertline.foundation.errors import DataError
from bertline.foundation.progress import say
from bertline.inference.predictor import InputColumn
from bertline.tasks.bad_rows import BadRow, BadRows, require_whole_characters
from bertline.tasks.cells import text_in
from bertline.tasks.decoded_files import OptionNames
from bertline.tasks.table_files import FORMATS_BY_ENDING, Record, TableLayout, read_lines, read_records

RowFormat = Literal["txt", "csv", "tsv", "jsonl", "parquet"]
Row = dict[str, Any]

LINE_COLUMN, TEXT_COLUMN = "line", "text"
PLAIN_LAYOUT = TableLayout("auto", header=True, quoting=True, encoding="utf-8")
"""Default layout of input files."""
_OPTIONS = OptionNames(format="format", encoding="encoding", quoting="quoting", extra_fields="extra_fields")
# Maximum size of a block: enough rows to sort by length, few enough to distribute over threads and write early.
_ROWS_TOGETHER = 512
_CHARACTERS_TOGETHER = 200_000
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
    """Return the format to read a file in: that of the layout, or with `auto` that of the extension.

    Raises:
        DataError: The format is `auto`, and the extension is not supported.
    """
    return format_of(path) if layout.format == "auto" else layout.format


def read_rows(path: Path, layout: TableLayout) -> Iterator[Record]:
    """Yield the rows of a file with their line numbers.

    Each line of a `.txt`, blank ones included, is a row with the columns `line` (from 1) and `text`. Blank lines of a
    table are no rows; their number is printed.

    Raises:
        DataError: The file is missing, undecodable or malformed; the message names file and line.
    """
    kind = format_read(path, layout)
    if not path.is_file():
        raise DataError(f"{path} is not a file. Correct its name.")
    layout = replace(layout, options=_OPTIONS)
    return _text_rows(path, layout) if kind == "txt" else _table_rows(path, replace(layout, format=kind))


def _text_rows(path: Path, layout: TableLayout) -> Iterator[Record]:
    has_text = False
    for line in read_lines(path, layout.encoding, layout.options):
        has_text = has_text or line.values[0].strip() != ""
        yield Record(line.where, {LINE_COLUMN: int(line.line), TEXT_COLUMN: line.values[0]})
    if not has_text:
        raise DataError(f"{path} has no rows. Give a file with at least one text.")


def _table_rows(path: Path, layout: TableLayout) -> Iterator[Record]:
    bad_rows = BadRows("error", option=None)
    yield from read_records(path, layout, bad_rows)
    if bad_rows.blank_lines:
        say(f"{path.name}: {bad_rows.blank_lines:,} blank lines are no rows")


def cell(record: Record, column: InputColumn) -> Any:
    """Return the value of a column: a text, as in training (`text_in`), or a list of texts.

    Raises:
        DataError: The column is missing, its value has another type, or it is empty where that is not allowed; the
            message names file and line.
    """
    if column.name not in record.values:
        found = ", ".join(str(name) for name in record.values)
        raise DataError(
            f"{record.where}: no column {column.name!r}; found {found}. Name the column that has the {column.holds}."
        )
    value = record.values[column.name]
    if column.holds == "texts" and isinstance(value, str):
        with suppress(json.JSONDecodeError):
            value = json.loads(value)
        try:
            require_whole_characters(value)
        except BadRow as bad:
            raise DataError(f"{record.where}: column {column.name!r}: {bad}. Fix or drop the row.") from bad
    if column.holds == "text":
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


@dataclass(slots=True)
class Block:
    """Rows that are predicted and written together."""

    records: list[Record] = field(default_factory=list)
    digest: str = ""
    """Digest of all rows of the input up to the last one of the block."""


def add_row(digest: hashlib.blake2b, record: Record) -> None:
    """Add the values of one row to a running digest."""
    digest.update(json.dumps([*record.values.items()], default=str).encode())


def blocks_of(records: Iterator[Record], digest: hashlib.blake2b) -> Iterator[Block]:
    """Group records into blocks that depend on the input alone, and add each record to the digest."""
    block, characters = Block(), 0
    for record in records:
        add_row(digest, record)
        block.records.append(record)
        block.digest = digest.hexdigest()
        characters += sum(len(value) for value in record.values.values() if isinstance(value, str | list))
        if len(block.records) == _ROWS_TOGETHER or characters >= _CHARACTERS_TOGETHER:
            yield block
            block, characters = Block(), 0
    if block.records:
        yield block
