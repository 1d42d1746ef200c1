"""Streaming of rows from input files, with memory use independent of the file size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bertline.foundation.errors import DataError
from bertline.tasks.option_names import OptionNames
from bertline.tasks.table_files import Record, TableLayout, read_lines, read_records

RowFormat = Literal["txt", "csv", "tsv", "jsonl", "parquet"]
Row = dict[str, Any]

TEXT_COLUMN = "text"
PLAIN_LAYOUT = TableLayout("auto", header=True, quoting=True, encoding="utf-8")
"""Default layout of input files."""
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
    """Yield the rows of a file with their line numbers. A line of a `.txt` is a row with the column `text`.

    Blank lines are skipped.

    Raises:
        DataError: The file is missing, undecodable or malformed; the message names file and line.
    """
    kind = format_read(path, layout)
    if not path.is_file():
        raise DataError(f"{path} is not a file. Correct its name.")
    if kind != "txt":
        return read_records(path, replace(layout, format=kind, options=_OPTIONS))
    lines = read_lines(path, layout.encoding, _OPTIONS)
    return (Record(line.where, {TEXT_COLUMN: line.values[0]}) for line in lines)
