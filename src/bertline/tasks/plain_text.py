"""Reader of unlabelled passages: the lines of a text file, or a column of a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.tasks.bad_rows import BadRow, BadRows
from bertline.tasks.decoded_files import OptionNames
from bertline.tasks.source_config import PlainTextSourceConfig
from bertline.tasks.table_files import Record, TableLayout, read_lines, read_records

_TEXT_FILE = ".txt"
_OPTIONS = OptionNames(encoding="source.encoding")


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of text."""

    id: str
    """File and line (Parquet: row, from 1)."""
    text: str


def read_passages(path: Path, config: PlainTextSourceConfig, bad_rows: BadRows) -> list[Passage]:
    """Read passages from a `.txt` file, one per line, or from CSV, TSV, JSONL or Parquet (`.gz` too, except Parquet).

    Blank lines of a text file are skipped. An empty text in a table is an invalid row.

    Raises:
        DataError: The file cannot be read, or a row is invalid and invalid rows are errors. The message names the file
            and, where there is one, the line.
    """
    if path.name.removesuffix(".gz").lower().endswith(_TEXT_FILE):
        return [
            Passage(line.where, line.values[0].strip()) for line in read_lines(path, config.encoding, options=_OPTIONS)
        ]
    layout = TableLayout("auto", header=True, quoting=True, encoding=config.encoding, options=_OPTIONS)
    found: list[Passage] = []
    for record in read_records(path, layout, bad_rows):
        try:
            found.append(Passage(record.where, _text(record, config.text_column)))
        except BadRow as bad:
            place = f"{path}:{record.where.rpartition(':')[2]}"
            bad_rows.found(BadRow(bad.reason, f"{place}: {bad}. Fix or remove the row."))
    return found


def _text(record: Record, column: str) -> str:
    if column not in record.values:
        existing = ", ".join(repr(name) for name in record.values) or "none"
        raise BadRow(
            "missing_column", f"there is no column {column!r} (source.text_column); the columns are {existing}"
        )
    value: Any = record.values[column]
    if value is not None and not isinstance(value, str):
        raise BadRow("wrong_type", f"{column!r} is {value!r}, which is no text")
    if not value or not value.strip():
        raise BadRow("empty_text", f"the text in column {column!r} is empty")
    return value.strip()
