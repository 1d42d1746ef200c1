"""Rows of JSONL, CSV and Parquet files.

JSONL and CSV are read one record at a time, so that an error names its line and a single bad record can be left out.
Parquet files are streamed by the `datasets` library, without a copy in a cache; only the needed columns are read.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bertline.corpus.document import SourceDocument
from bertline.corpus.input_files import InputFile, Line, find_files, read_lines
from bertline.corpus.reader import SHOWN_COLUMNS, CorpusReader, datasets_library, document_of_row
from bertline.foundation.errors import DataError

_SUFFIXES = {"jsonl": (".jsonl", ".ndjson", ".json"), "csv": (".csv", ".tsv"), "parquet": (".parquet",)}
_ENCODING = "utf-8"
_MAX_CELL_CHARACTERS = 200_000_000
_PARQUET_BATCH_ROWS = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCorpusConfig(CorpusReader):
    """JSONL, CSV or Parquet files with a text column; each row is a document."""

    user_data: ClassVar[str | None] = "path"
    kind: Literal["jsonl", "csv", "parquet"]
    path: str
    """A file, a folder (searched recursively) or a glob."""
    text_column: str
    """Name of the text column."""
    group_column: str | None
    """Column whose values group rows: a group is entirely in train or validation. None: each document is a group."""

    def read(self, dropped: Counter[str]) -> Iterator[SourceDocument]:
        """Read files of one format, one document per row; rows without text are counted and left out.

        Raises:
            DataError: A file or record is not in the format, the column is missing, or its value is not text.
        """
        read = {"jsonl": _read_jsonl, "csv": _read_csv, "parquet": _read_parquet}[self.kind]
        for file in find_files(self.path, _SUFFIXES[self.kind], dropped):
            empty = True
            for number, row in read(file, self, dropped):
                empty = False
                document = document_of_row(row, f"{file.name}:{number}", f"{file.path}:{number}", self, dropped)
                if document is not None:
                    yield document
            if empty:
                dropped["files/empty"] += 1


def _read_jsonl(
    file: InputFile, config: TableCorpusConfig, dropped: Counter[str]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line in read_lines(file, _ENCODING, config.on_undecodable, dropped):
        if line.undecodable:
            dropped["documents/undecodable"] += 1
            continue
        if not line.text.strip():
            continue
        try:
            row = json.loads(line.text)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{file.path}:{line.number}: not valid JSON ({error}). A JSONL file has one object per line; found "
                f"{line.text[:60]!r}."
            ) from error
        if not isinstance(row, dict):
            raise DataError(
                f"{file.path}:{line.number}: expected a JSON object with the key {config.text_column!r}, found "
                f"{type(row).__name__} {line.text[:60]!r}."
            )
        yield line.number, row


def _read_csv(
    file: InputFile, config: TableCorpusConfig, dropped: Counter[str]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    csv.field_size_limit(_MAX_CELL_CHARACTERS)
    source = _RecordLines(read_lines(file, _ENCODING, config.on_undecodable, dropped))
    delimiter = "\t" if file.name.removesuffix(".gz").endswith(".tsv") else ","
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    number = 1
    try:
        for cells in reader:
            undecodable, source.undecodable = source.undecodable, False
            if header is None:
                header = cells
            elif undecodable:
                dropped["documents/undecodable"] += 1
            elif cells:
                if len(cells) != len(header):
                    raise DataError(
                        f"{file.path}:{number}: {len(cells)} fields, but the header has {len(header)} "
                        f"({', '.join(header[:SHOWN_COLUMNS])}). Is a delimiter or quote in the text not quoted?"
                    )
                yield number, dict(zip(header, cells, strict=True))
            number = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{file.path}:{number}: not valid CSV ({error}) in the record that starts here.") from error


class _RecordLines:
    """Input lines of a CSV reader; records whether a line of the current record was undecodable."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self.undecodable = False

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.undecodable = self.undecodable or line.undecodable
            yield line.text + "\n"


def _read_parquet(
    file: InputFile, config: TableCorpusConfig, dropped: Counter[str]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    datasets = datasets_library()
    try:
        # Explicit batch size: by default, datasets reads a whole row group at once.
        rows = datasets.load_dataset(
            "parquet",
            data_files=str(file.path.resolve()),
            split="train",
            streaming=True,
            batch_size=_PARQUET_BATCH_ROWS,
        )
        names = rows.column_names
        wanted = [config.text_column] if config.group_column is None else [config.text_column, config.group_column]
        if names is not None and all(column in names for column in wanted):
            rows = rows.select_columns(wanted)
        yield from enumerate(rows, start=1)
    except DataError:
        raise
    except Exception as error:  # Arrow, fsspec and datasets have different exceptions
        if config.on_undecodable == "fail":
            raise DataError(
                f"{file.path}: not a readable Parquet file ({type(error).__name__}: {error}). Copy or write it again."
            ) from error
        dropped["files/torn"] += 1
