"""Train, dev and test passages of a fill-mask task, from lines of text or the rows of a table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from bertline.kinds.fill_mask.config import FillMaskTaskConfig
from bertline.tasks.bad_rows import BadRow, BadRows, text_in
from bertline.tasks.decoded_files import ENCODING_OPTION
from bertline.tasks.source_config import PlainTextSourceConfig
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.stored_rows import BuiltTask, PlainRows, read_rows
from bertline.tasks.table_source import Record, TableLayout, parsed_records, read_lines, value_in


def built_task(name: str, config: FillMaskTaskConfig) -> BuiltTask:
    """Read the files, cut missing splits from train, and shuffle train.

    A hash of its words assigns a passage to a split, so equal passages stay together. A train passage that also occurs
    in dev or test, or a dev passage that also occurs in test, is dropped and counted.

    Raises:
        DataError: The data is invalid. The message names file and line, the problem and how to fix it.
    """
    source = config.source
    splits, dropped = read_splits(
        source,
        config,
        lambda file, bad_rows: read_passages(file, source, bad_rows),
        same=lambda row: same_text([row.text]),
        name="passage",
    )
    return BuiltTask(splits={split: PlainRows.of(rows) for split, rows in splits.items()}, dropped=dropped)


stored_rows = partial(read_rows, rows_class=PlainRows)
"""Reads a split that the stage has written."""


_TEXT_FILE = ".txt"


class Passage(NamedTuple):
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
        lines = read_lines(path, config.encoding, ENCODING_OPTION)
        return [Passage(line.where, line.values[0].strip()) for line in lines if line.values[0].strip()]
    layout = TableLayout("auto", header=True, quoting=True, encoding=config.encoding, options=ENCODING_OPTION)
    return parsed_records(
        path, layout, bad_rows, lambda record: Passage(record.where, _text(record, config.text_column))
    )


def _text(record: Record, column: str) -> str:
    value = value_in(record, column, "source.text_column")
    text = "" if value is None else text_in(value)
    if text is None:
        raise BadRow("wrong_type", f"{column!r} is {value!r}, which is no text")
    if not text.strip():
        raise BadRow("empty_text", f"the text in column {column!r} is empty")
    return text.strip()
