"""An output that grows as its rows are made, and that a later start continues after a kill.

Rows are appended in blocks. After each block a small file beside the output, `NAME.progress`, says how many rows and
bytes are in place, what they were made from, and the digest of the input rows so far; it is removed when the output is
complete. A later start cuts off what a kill left of a torn block and continues behind the last whole one.

Lines (.jsonl, .csv, .tsv) are appended to the output itself; each block of a .gz is a gzip member of its own, which
every reader takes as one file. A Parquet file cannot grow: its blocks stand in the folder `NAME.unfinished` and are
joined at the end. Where a complete output of that name exists, lines grow in `NAME.unfinished` too, and take its place
at the end.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.errors import DataError, MachineError
from bertline.foundation.files import cannot_write, read_json, write_json
from bertline.foundation.validation import validate
from bertline.inference.row_files import Row, RowFormat, format_of

_FORMAT_VERSION = 1
# Rows of a row group of a joined Parquet file.
_ROW_GROUP = 1 << 14


@dataclass(frozen=True, kw_only=True, slots=True)
class _Progress:
    """The content of `NAME.progress`."""

    format_version: int
    file: str
    """The name of what grows, beside `NAME.progress`."""
    made_from: dict[str, str]
    num_rows: int
    num_truncated: int
    num_blocks: int
    num_bytes: int
    """0 for Parquet, whose blocks are files."""
    rows_digest: str
    """Of the input rows so far."""
    columns: tuple[str, ...]


class GrowingFile:
    """Appends rows to an output; see the module.

    Args:
        target: The output; its ending says the format, of which `.txt` is none that rows can be written in.
        made_from: What decides the rows apart from the input; another start must have the same.
        added: The columns that are added to those of the input.
        schema: Of the input's columns in a Parquet file, where it is known; else the first rows decide.

    Raises:
        DataError: Another ending; or an unfinished output that was made from something else, or is damaged.
        MachineError: The folder cannot be written.
    """

    def __init__(
        self, target: Path, *, made_from: Mapping[str, str], added: pa.Schema, schema: pa.Schema | None = None
    ) -> None:
        self._target = target
        self._kind: RowFormat = format_of(target)
        if self._kind == "txt":
            raise DataError(
                f"{target}: rows with columns cannot be written as .txt; choose .jsonl, .csv, .tsv or .parquet."
            )
        self._added = added
        self._schema = None if schema is None else pa.schema([*schema, *added])
        self._progress_file = target.with_name(f"{target.name}.progress")
        with self._writing():
            target.parent.mkdir(parents=True, exist_ok=True)
            self._progress = self._found(dict(made_from)) or self._new(dict(made_from))

    @property
    def num_rows(self) -> int:
        """Rows that are in place."""
        return self._progress.num_rows

    @property
    def num_truncated(self) -> int:
        """Of these, how many inputs lost tokens."""
        return self._progress.num_truncated

    @property
    def rows_digest(self) -> str:
        """Of the input rows that the rows in place were made from; empty where there are none."""
        return self._progress.rows_digest

    def begun_anew(self, why: str) -> DataError:
        """The error for an unfinished output that cannot be continued."""
        return DataError(
            f"{self._target} is unfinished ({self.num_rows:,} rows are in place), and {why}. Give what it was begun "
            f"with, or remove {self._growing} and {self._progress_file} to start from the first row."
        )

    def append(self, rows: list[Row], *, num_truncated: int, rows_digest: str) -> None:
        """Put a block in place.

        Args:
            rows: At least one.
            num_truncated: Of them, how many inputs lost tokens.
            rows_digest: Of all input rows up to the last of these.

        Raises:
            DataError: Rows whose columns are not those of the first, where the format cannot hold them.
            MachineError: The disk is full.
        """
        before = self._progress
        columns = before.columns or tuple(rows[0])
        with self._writing():
            num_bytes = self._append_part(rows) if self._kind == "parquet" else self._append_lines(rows, columns)
            self._progress = replace(
                before,
                num_rows=before.num_rows + len(rows),
                num_truncated=before.num_truncated + num_truncated,
                num_blocks=before.num_blocks + 1,
                num_bytes=before.num_bytes + num_bytes,
                rows_digest=rows_digest,
                columns=columns,
            )
            write_json(self._progress_file, asdict(self._progress))

    def finish(self) -> None:
        """The output is complete and gets its name.

        Raises:
            MachineError: The disk is full.
        """
        with self._writing():
            if self._kind == "parquet":
                joined = self._target.with_name(f".{self._target.name}.joined")
                _join([self._part(number) for number in range(self._progress.num_blocks)], joined)
                joined.replace(self._target)
                self._progress_file.unlink()
                shutil.rmtree(self._growing)
                return
            if self._growing != self._target:
                self._growing.replace(self._target)
            self._progress_file.unlink()

    # ---- where it stands

    @property
    def _growing(self) -> Path:
        return self._target.with_name(self._progress.file)

    def _new(self, made_from: dict[str, str]) -> _Progress:
        aside = self._kind == "parquet" or self._target.exists()
        return _Progress(
            format_version=_FORMAT_VERSION,
            file=f"{self._target.name}.unfinished" if aside else self._target.name,
            made_from=made_from,
            num_rows=0,
            num_truncated=0,
            num_blocks=0,
            num_bytes=0,
            rows_digest="",
            columns=(),
        )

    def _found(self, made_from: dict[str, str]) -> _Progress | None:
        """Where an earlier start stopped; None where there was none."""
        if not self._progress_file.exists():
            return None
        self._progress = found = validate(_Progress, read_json(self._progress_file), where=str(self._progress_file))
        if not self._growing.exists():
            # Killed between the last two steps of `finish`: what there was has its name.
            return None
        for name in sorted({*made_from, *found.made_from}):
            if made_from.get(name) != found.made_from.get(name):
                raise self.begun_anew(f"was begun with another {name}")
        if self._kind == "parquet":
            if missing := [n for n in range(found.num_blocks) if not self._part(n).is_file()]:
                raise self.begun_anew(f"{self._part(missing[0])} is missing")
            self._schema = self._schema or pq.read_schema(self._part(0))
        elif self._growing.stat().st_size < found.num_bytes:
            raise self.begun_anew("the file is shorter than it was")
        return found

    # ---- blocks

    def _append_lines(self, rows: list[Row], columns: tuple[str, ...]) -> int:
        text = io.StringIO(newline="")
        if self._kind == "jsonl":
            # Parquet has values that JSON has not, such as dates; they are written as text.
            text.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(text, columns, delimiter="," if self._kind == "csv" else "\t")
            if not self._progress.num_rows:
                writer.writeheader()
            for row in rows:
                _require_columns(row, columns, self._target)
                writer.writerow({name: _in_a_field(value) for name, value in row.items()})
        data = text.getvalue().encode()
        if self._target.suffix.lower() == ".gz":
            data = gzip.compress(data, mtime=0)
        with self._growing.open("r+b" if self._progress.num_rows else "wb") as handle:
            handle.truncate(self._progress.num_bytes)
            handle.seek(0, os.SEEK_END)
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        return len(data)

    def _append_part(self, rows: list[Row]) -> int:
        try:
            if self._schema is None:
                given = [{name: row[name] for name in row if name not in self._added.names} for row in rows]
                self._schema = pa.schema([*pa.Table.from_pylist(given).schema, *self._added])
            for row in rows:
                _require_columns(row, self._schema.names, self._target)
            table = pa.Table.from_pylist(rows, schema=self._schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(
                f"{self._target}: {error}. Columns of mixed types fit into .jsonl only; choose that ending."
            ) from error
        if not self._progress.num_rows:
            shutil.rmtree(self._growing, ignore_errors=True)
            self._growing.mkdir()
        pq.write_table(table, self._part(self._progress.num_blocks), compression="zstd")
        return 0

    def _part(self, number: int) -> Path:
        return self._growing / f"{number:06d}.parquet"

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise MachineError(cannot_write(self._target, error)) from error


def _join(parts: list[Path], path: Path) -> None:
    """Parts as one file, a few of them in memory at once."""
    waiting: list[pa.Table] = []
    with pq.ParquetWriter(path, pq.read_schema(parts[0]), compression="zstd") as writer:
        for part in parts:
            waiting.append(pq.read_table(part))
            if sum(map(len, waiting)) >= _ROW_GROUP:
                writer.write_table(pa.concat_tables(waiting))
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting))


def _in_a_field(value: Any) -> Any:
    """Lists and mappings as JSON; other values are written as they are."""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else value


def _require_columns(row: Row, columns: tuple[str, ...] | list[str], path: Path) -> None:
    more = [name for name in row if name not in columns]
    if more:
        raise DataError(
            f"{path}: a row has the column {more[0]!r}, the first rows have {', '.join(columns)}. "
            "Rows of different columns fit into .jsonl only; choose that ending."
        )
