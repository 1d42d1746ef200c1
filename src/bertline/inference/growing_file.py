"""Output file that is written block by block, and that a later run resumes after a crash.

Rows are appended in blocks. After each block a small file next to the output, `NAME.progress`, records how many rows
and bytes are complete, what they were made from, and the digest of the input rows so far; it is removed when the output
is complete. A later run truncates an incomplete block and resumes after the last complete one.

Lines (.jsonl, .csv, .tsv) are appended to the output itself; each block of a .gz is a separate gzip member, and readers
decode all members as one file. A Parquet file cannot be appended to: its blocks are files in the folder
`NAME.unfinished` and are joined at the end. If a complete output of that name exists, lines are written to
`NAME.unfinished` instead, which replaces the output at the end.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.errors import DataError
from bertline.foundation.files import lock_file, read_json, write_json, writing
from bertline.foundation.validation import validate
from bertline.inference.row_files import Row, RowFormat, format_of

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

        Args:
            rows: Rows of the block, at least one.
            num_truncated: Number of these rows whose input was truncated.
            rows_digest: Digest of all input rows up to the last of these.

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
        for field in inferred:
            first = expected.field(field.name).type if field.name in expected.names else field.type
            is_wider = pa.types.is_floating(first) and pa.types.is_integer(field.type)
            if field.type != first and not pa.types.is_null(field.type) and not is_wider:
                now = f"rows {self.progress.num_rows + 1:,} and on have {field.type}"
                was = "have nothing but empty values" if pa.types.is_null(first) else f"have {first}"
                raise DataError(
                    f"{self._target}: in the column {field.name!r}, {now}, the rows before {was}. Columns of mixed "
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
