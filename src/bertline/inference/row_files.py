"""Rows of files: input in any of the formats, and output that is written block by block and resumed after a crash."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.errors import DataError
from bertline.foundation.files import lock_file, read_json, write_json, writing
from bertline.foundation.progress import say
from bertline.foundation.validation import validate
from bertline.kinds.base import InputColumn
from bertline.tasks.bad_rows import BadRow, BadRows, require_whole_characters, text_in
from bertline.tasks.decoded_files import OptionNames
from bertline.tasks.table_source import FORMATS_BY_ENDING, Record, TableLayout, read_lines, read_records

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


# Output file that is written block by block, and that a later run resumes after a crash.
#
# Rows are appended in blocks. After each block a small file next to the output, `NAME.progress`, records how many rows
# and bytes are complete, what they were made from, and the digest of the input rows so far; it is removed when the
# output is complete. A later run truncates an incomplete block and resumes after the last complete one.
#
# Lines (.jsonl, .csv, .tsv) are appended to the output itself; each block of a .gz is a separate gzip member, and
# readers decode all members as one file. A Parquet file cannot be appended to: its blocks are files in the folder
# `NAME.unfinished` and are joined at the end. If a complete output of that name exists, lines are written to
# `NAME.unfinished` instead, which replaces the output at the end.

_FORMAT_VERSION = 1
# Number of rows in a row group of a joined Parquet file.
_ROW_GROUP = 1 << 14


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Content of `NAME.progress`."""

    format_version: int
    file: str
    """Name of the growing file or folder, in the same folder as `NAME.progress`."""
    made_from: dict[str, str]
    num_rows: int = 0
    """Number of rows written so far."""
    num_truncated: int = 0
    """Number of rows written so far whose input was truncated."""
    num_blocks: int = 0
    num_bytes: int = 0
    """Size of the complete blocks; 0 for Parquet, whose blocks are files."""
    rows_digest: str = ""
    """Digest of the input rows so far; empty if there are none."""
    columns: tuple[str, ...] = ()


class GrowingFile:
    """Writer that appends blocks of rows to an output and can resume it; see the module docstring.

    Arguments are those of `growing_file`, which holds the lock on the output.
    """

    def __init__(
        self, target: Path, *, made_from: Mapping[str, str], added: pa.Schema, schema: pa.Schema | None = None
    ) -> None:
        self._target = target
        self._kind: RowFormat = format_of(target)
        self._added = added
        self._schema = None if schema is None else pa.schema([*schema, *added])
        self._is_inferred = schema is None
        self._progress_file = target.with_name(f"{target.name}.progress")
        with writing(target):
            aside = self._kind == "parquet" or target.exists()
            file = f"{target.name}.unfinished" if aside else target.name
            new = Progress(format_version=_FORMAT_VERSION, file=file, made_from=dict(made_from))
            self.progress = self._found(new.made_from) or new

    def cannot_resume(self, why: str) -> DataError:
        """Return the error for an unfinished output that cannot be resumed."""
        return DataError(
            f"{self._target} is unfinished ({self.progress.num_rows:,} rows are in place), and {why}. Give what it was "
            f"started with, or remove {self._growing} and {self._progress_file} to start from the first row."
        )

    def append(self, rows: list[Row], *, num_truncated: int, rows_digest: str) -> None:
        """Append a block of rows.

        Raises:
            DataError: The columns or their types differ from those of the first rows, and the format cannot hold both.
            MachineError: The output cannot be written, for example because the disk is full.
        """
        before = self.progress
        columns = before.columns or tuple(rows[0])
        for row in rows if self._kind != "jsonl" else ():
            if more := [name for name in row if name not in columns]:
                raise DataError(
                    f"{self._target}: a row has the column {more[0]!r}, the first rows have {', '.join(columns)}. "
                    "Rows of different columns fit into .jsonl only; choose that ending."
                )
        with writing(self._target):
            num_bytes = self._append_part(rows) if self._kind == "parquet" else self._append_lines(rows, columns)
            self.progress = replace(
                before,
                num_rows=before.num_rows + len(rows),
                num_truncated=before.num_truncated + num_truncated,
                num_blocks=before.num_blocks + 1,
                num_bytes=before.num_bytes + num_bytes,
                rows_digest=rows_digest,
                columns=columns,
            )
            write_json(self._progress_file, asdict(self.progress))

    def finish(self) -> None:
        """Complete the output and move it to its final name.

        Raises:
            MachineError: The output cannot be written, for example because the disk is full.
        """
        complete = self._growing
        with writing(self._target):
            if self._kind == "parquet":
                complete = self._target.with_name(f".{self._target.name}.joined")
                _join([self._part(number) for number in range(self.progress.num_blocks)], complete)
            complete.replace(self._target)
            self._progress_file.unlink()
            if self._kind == "parquet":
                shutil.rmtree(self._growing)

    # ---- progress

    @property
    def _growing(self) -> Path:
        return self._target.with_name(self.progress.file)

    def _found(self, made_from: dict[str, str]) -> Progress | None:
        """Return the progress of an earlier run to resume; None if there is none."""
        if not self._progress_file.exists():
            return None
        self.progress = found = validate(Progress, read_json(self._progress_file), where=str(self._progress_file))
        if not self._growing.exists():
            # The earlier run was killed between the last two steps of `finish`: the output is complete.
            return None
        for name in sorted({*made_from, *found.made_from}):
            if made_from.get(name) != found.made_from.get(name):
                raise self.cannot_resume(f"was started with another {name}")
        if self._kind == "parquet":
            if missing := [n for n in range(found.num_blocks) if not self._part(n).is_file()]:
                raise self.cannot_resume(f"{self._part(missing[0])} is missing")
            self._schema = self._schema or pq.read_schema(self._part(0))
        elif self._growing.stat().st_size < found.num_bytes:
            raise self.cannot_resume("the file is shorter than it was")
        return found

    # ---- blocks

    def _append_lines(self, rows: list[Row], columns: tuple[str, ...]) -> int:
        text = io.StringIO(newline="")
        if self._kind == "jsonl":
            # Types that JSON lacks, such as dates from Parquet, are written as text.
            text.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(text, columns, delimiter="," if self._kind == "csv" else "\t")
            if not self.progress.num_rows:
                writer.writeheader()
            writer.writerows({name: _in_a_field(value) for name, value in row.items()} for row in rows)
        data = text.getvalue().encode()
        if self._target.suffix.lower() == ".gz":
            data = gzip.compress(data, mtime=0)
        with self._growing.open("r+b" if self.progress.num_rows else "wb") as handle:
            handle.truncate(self.progress.num_bytes)
            handle.seek(0, os.SEEK_END)
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        return len(data)

    def _append_part(self, rows: list[Row]) -> int:
        try:
            if self._is_inferred:
                given = [{name: row[name] for name in row if name not in self._added.names} for row in rows]
                inferred = pa.Table.from_pylist(given).schema
                self._schema = self._schema or pa.schema([*inferred, *self._added])
                self._require_types(inferred, self._schema)
            assert self._schema is not None  # given, or inferred from the first rows
            table = pa.Table.from_pylist(rows, schema=self._schema)
        except (pa.ArrowException, OverflowError) as error:
            raise DataError(
                f"{self._target}: {error}. Columns of mixed types fit into .jsonl only; choose that ending."
            ) from error
        if not self.progress.num_rows:
            shutil.rmtree(self._growing, ignore_errors=True)
            self._growing.mkdir()
        pq.write_table(table, self._part(self.progress.num_blocks), compression="zstd")
        return 0

    def _require_types(self, inferred: pa.Schema, expected: pa.Schema) -> None:
        """Reject types that differ from those of the first rows, which the values would silently be cast to."""
        for column in inferred:
            first = expected.field(column.name).type if column.name in expected.names else column.type
            is_wider = pa.types.is_floating(first) and pa.types.is_integer(column.type)
            if column.type != first and not pa.types.is_null(column.type) and not is_wider:
                now = f"rows {self.progress.num_rows + 1:,} and on have {column.type}"
                was = "have nothing but empty values" if pa.types.is_null(first) else f"have {first}"
                raise DataError(
                    f"{self._target}: in the column {column.name!r}, {now}, the rows before {was}. Columns of mixed "
                    "types fit into .jsonl only; choose that ending."
                )

    def _part(self, number: int) -> Path:
        return self._growing / f"{number:06d}.parquet"


@contextmanager
def growing_file(
    target: Path, *, made_from: Mapping[str, str], added: pa.Schema, schema: pa.Schema | None = None
) -> Iterator[GrowingFile]:
    """Open an output that may be unfinished, locked against other processes.

    Args:
        target: Path of the output; its extension gives the format. `.txt` is rejected, since it cannot hold columns.
        made_from: Everything that determines the rows apart from the input; must be the same when resuming.
        added: Schema of the columns that are added to those of the input.
        schema: Schema of the input's columns in a Parquet file; None infers it from the first rows.

    Raises:
        DataError: The extension is not supported, an unfinished output was made from something else or is damaged, or
            another process is writing the output.
        MachineError: The folder cannot be written.
    """
    if format_of(target) == "txt":
        raise DataError(
            f"{target}: rows with columns cannot be written as .txt; choose .jsonl, .csv, .tsv or .parquet."
        )
    path = target.with_name(f".{target.name}.lock")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(path, target)
    try:
        yield GrowingFile(target, made_from=made_from, added=added, schema=schema)
    finally:
        with suppress(OSError):
            path.unlink()
        lock.close()


def _locked(path: Path, target: Path) -> TextIO:
    """Lock a file; the kernel releases the lock when the process ends."""
    while True:
        handle = path.open("a")
        if lock_file(handle) is False:
            handle.close()
            raise DataError(f"{target} is being written by another process; wait for it, or end it.")
        # A process that just finished may have removed the file: the lock would then be on a deleted file.
        if path.exists() and os.path.samestat(os.fstat(handle.fileno()), path.stat()):
            return handle
        handle.close()


def _join(parts: list[Path], path: Path) -> None:
    """Join parts into one file, keeping only a few of them in memory."""
    waiting: list[pa.Table] = []
    with pq.ParquetWriter(path, pq.read_schema(parts[0]), compression="zstd") as writer:
        for part in parts:
            waiting.append(pq.read_table(part))
            if part == parts[-1] or sum(map(len, waiting)) >= _ROW_GROUP:
                writer.write_table(pa.concat_tables(waiting))
                waiting = []


def _in_a_field(value: Any) -> Any:
    """Convert lists and mappings to JSON; return other values unchanged."""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else value
