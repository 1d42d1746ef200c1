"""Rows of JSONL, CSV and Parquet files, and of Hugging Face datasets.

JSONL and CSV are read one record at a time, so that an error names its line and a single bad record can be left out.
Of Parquet files, only the needed columns are read, in batches. Datasets of the hub are streamed by the `datasets`
library, without a copy in a cache.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Literal

import pyarrow.parquet as pq

from bertline.corpus.compression import without_compression
from bertline.corpus.document import SourceDocument
from bertline.corpus.input_files import InputFile, find_files, leave_out, paragraphs_of
from bertline.corpus.lines import read_lines
from bertline.corpus.reader import CorpusReader, CorpusSettings, SourceSettings
from bertline.foundation.delimited import check_header, quoted_rows, unquoted_rows
from bertline.foundation.errors import DataError
from bertline.foundation.progress import of_kind, warn

_SUFFIXES = {"jsonl": (".jsonl", ".ndjson", ".json"), "csv": (".csv", ".tsv"), "parquet": (".parquet",)}
_PARQUET_BATCH_ROWS = 1_000
_PARQUET_BUFFER_BYTES = 1 << 20
_SHOWN_COLUMNS = 20
"""Maximum number of column names in a message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _RowsReader(CorpusReader):
    """What corpora of rows with named columns share."""

    user_data: ClassVar[str | None] = None
    text_column: str
    """Name of the text column."""
    group_column: str | None
    """Column whose values group rows: a group is entirely in train or validation. None: each document is a group."""

    @property
    def columns(self) -> dict[str, str]:
        """Names of the columns that are read, by the setting that names them."""
        named = {
            "text_column": self.text_column,
            "group_column": self.group_column,
            "language_column": getattr(self, "language_column", None),
        }
        return {setting: column for setting, column in named.items() if column is not None}

    def bad_row(self, place: str, problem: str, dropped: Counter[str], reason: str, where: str, text: str) -> None:
        """Count a row that cannot be used under a reason, and say so.

        Raises:
            DataError: With `on_undecodable: fail`.
        """
        if self.on_undecodable == "fail":
            raise DataError(f"{place}: {problem}. Fix it, or set corpus.on_undecodable=skip to count such rows.")
        leave_out(dropped, reason, where, text)
        warn(f"{place}: {problem}; left out, counted under {reason}", extra=of_kind(reason))

    def _documents(
        self, rows: Iterable[tuple[int, Mapping[str, Any]]], name: str, where: str, dropped: Counter[str]
    ) -> Iterator[SourceDocument]:
        """Convert numbered rows to documents.

        Args:
            rows: Rows with their numbers. A row without text is counted and left out.
            name: Beginning of the id of a document, the same on every machine.
            where: Beginning of its place, for messages.
            dropped: See `read`.
        """
        for place, (number, row) in enumerate(rows):
            missing = [role for role, column in self.columns.items() if column not in row]
            if missing:
                names = ", ".join(list(row)[:_SHOWN_COLUMNS]) or "none"
                is_unsplit = len(row) == 1 and set(names) & set(";|\t,")
                hint = " Does another mark separate them (corpus.separator)?" if is_unsplit else ""
                problem = f"no column {self.columns[missing[0]]!r} (corpus.{missing[0]}). Columns here: {names}"
                if not place:
                    raise DataError(f"{where}{number}: {problem}.{hint}")
                self.bad_row(f"{where}{number}", problem, dropped, "documents/no_column", f"{name}{number}", str(row))
                continue
            text = row[self.text_column]
            if text is None or text == "" or text != text:  # NaN, as pandas writes a missing value
                leave_out(dropped, "documents/no_text", f"{name}{number}")
                continue
            if not isinstance(text, str):
                held = f"holds {type(text).__name__} {str(text)[:60]!r}, expected text"
                problem = f"column {self.text_column!r} (corpus.text_column) {held}"
                self.bad_row(f"{where}{number}", problem, dropped, "documents/not_text", f"{name}{number}", str(text))
                continue
            group = row[self.group_column] if self.group_column is not None else None
            group = "" if group is None else f"{self.group_column}={group}"
            language = row[self.columns["language_column"]] if "language_column" in self.columns else None
            language = None if language in (None, "") else str(language)
            paragraphs = tuple(paragraphs_of(text.splitlines()))
            yield SourceDocument(f"{name}{number}", group, paragraphs, language=language)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableReader(_RowsReader):
    """JSONL, CSV or Parquet files with a text column; each row is a document."""

    user_data: ClassVar[str | None] = "path"
    kind: Literal["jsonl", "csv", "parquet"]
    path: str
    """A file, a folder (searched recursively) or a glob."""
    encoding: str = "utf-8"
    """Character encoding of JSONL and CSV files; `auto` detects that of each file."""
    separator: str | None = None
    """Separator of the fields of CSV files; None: a tab in `.tsv` files, else a comma."""
    quoting: bool = True
    """Whether fields of CSV files may be in double quotes; false takes quotes as text, and each line as a row."""

    def check(self) -> None:
        """Raise ValueError for settings of another format, and a separator that is not one character."""
        if self.kind == "parquet" and self.encoding != "utf-8":
            raise ValueError(f"encoding is {self.encoding!r}, but Parquet holds its own; leave it out")
        if self.kind != "csv" and (self.separator is not None or not self.quoting):
            raise ValueError(f"separator and quoting are for kind: csv, found kind: {self.kind}; leave them out")
        if self.separator is not None and len(self.separator) != 1:
            raise ValueError(f"separator must be one character, found {self.separator!r}")

    def read(self, dropped: Counter[str]) -> Iterator[SourceDocument]:
        """Read files of one format, one document per row; rows without text are counted and left out.

        Raises:
            DataError: A file or record is not in the format, the column is missing, or its value is not text.
        """
        read = {"jsonl": _read_jsonl, "csv": _read_csv, "parquet": _read_parquet}[self.kind]
        for file in find_files(self.path, _SUFFIXES[self.kind], dropped):
            torn = dropped["files/torn"]
            rows = read(file, self, dropped)
            first = next(rows, None)
            if first is not None:
                yield from self._documents(chain((first,), rows), f"{file.name}:", f"{file.path}:", dropped)
            elif dropped["files/torn"] == torn:
                leave_out(dropped, "files/empty", file.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCorpusConfig(TableReader, CorpusSettings):
    """Files with a text column, as the corpus."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSource(TableReader, SourceSettings):
    """Files with a text column, as one of several sources."""

    language_column: str | None
    """Column with the language of each row, such as `de`; None: `language` says it, or none is known."""


def _read_jsonl(file: InputFile, config: TableReader, dropped: Counter[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line in read_lines(file, config.encoding, config.on_undecodable, dropped):
        if line.undecodable:
            leave_out(dropped, "documents/undecodable", f"{file.name}:{line.number}", line.text)
            continue
        if not line.text.strip():
            continue
        try:
            row = json.loads(line.text)
            found_instead = "" if isinstance(row, dict) else f", found {type(row).__name__} {line.text[:60]!r}"
            problem = found_instead and f"expected a JSON object with the key {config.text_column!r}{found_instead}"
        except (ValueError, RecursionError) as error:
            problem = f"not valid JSON ({error}). A JSONL file has one object per line; found {line.text[:60]!r}"
        if not problem:
            yield line.number, row
            continue
        place, name = f"{file.path}:{line.number}", f"{file.name}:{line.number}"
        config.bad_row(place, problem, dropped, "documents/not_json", name, line.text)


_QUOTES = (
    "If the file has quotes that do not pair up, set corpus.quoting=false, which takes them as text; else fix them."
)


def _read_csv(file: InputFile, config: TableReader, dropped: Counter[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    undecodable = False  # whether a line of the current record is

    def texts() -> Iterator[str]:
        nonlocal undecodable
        for line in read_lines(file, config.encoding, config.on_undecodable, dropped):
            undecodable = undecodable or line.undecodable
            # A line that is too long comes empty, and an empty one would be no record that can be counted.
            yield (line.text or ("\ufffd" if line.undecodable else "")) + "\n"

    separator = config.separator or ("\t" if without_compression(file.name).endswith(".tsv") else ",")
    rows = (
        quoted_rows(texts(), separator, where=str(file.path), hint=_QUOTES)
        if config.quoting
        else unquoted_rows(texts(), separator)
    )
    header: list[str] | None = None
    for number, num_lines, cells in rows:
        if header is None:
            header = [name.strip() for name in cells]
            check_header(str(file.path), number, header)
        elif undecodable:
            leave_out(dropped, "documents/undecodable", f"{file.name}:{number}", separator.join(cells))
        elif len(cells) == len(header):
            yield number, dict(zip(header, cells, strict=True))
        else:
            place, named = f"{file.path}:{number}", ", ".join(header[:_SHOWN_COLUMNS])
            problem = f"{len(cells)} fields, but the header has {len(header)} ({named})"
            if num_lines > 1:  # a quote that does not pair up, which may have swallowed valid rows
                raise DataError(f"{place}: {problem}, in a row over {num_lines} lines. {_QUOTES}")
            problem += ": a separator or quote in the text is not quoted, or corpus.separator is another"
            name, text = f"{file.name}:{number}", separator.join(cells)
            config.bad_row(place, problem, dropped, "documents/wrong_width", name, text)
        undecodable = False


def _read_parquet(
    file: InputFile, config: TableReader, dropped: Counter[str]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    number = 0
    try:
        # Not mapped into memory, where a file that shrinks would end the process; a page at a time, not a row group.
        with pq.ParquetFile(file.path, memory_map=False, buffer_size=_PARQUET_BUFFER_BYTES) as table:
            wanted = list(config.columns.values())
            columns = wanted if set(wanted) <= set(table.schema_arrow.names) else None
            for group in range(table.num_row_groups):  # one by one, so that a damaged one leaves those before it
                for batch in table.iter_batches(_PARQUET_BATCH_ROWS, [group], columns, use_threads=False):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
    except Exception as error:  # damaged data raises exceptions of Arrow, of the file and of what decodes values
        if config.on_undecodable == "fail":
            raise DataError(
                f"{file.path}: not a readable Parquet file from row {number + 1} on ({type(error).__name__}: {error}). "
                "Copy or write it again, or set corpus.on_undecodable=skip to keep the rows before and count the file."
            ) from error
        leave_out(dropped, "files/torn", file.name, f"not readable from row {number + 1} on")


@dataclass(frozen=True, kw_only=True, slots=True)
class HubReader(_RowsReader):
    """A Hugging Face dataset; each row is a document."""

    user_data: ClassVar[str | None] = None
    kind: Literal["hub"]
    name: str
    """Name of the dataset on the hub, such as `wikimedia/wikipedia`."""
    revision: str
    """Commit hash of the dataset, for reproducibility."""
    subset: str | None
    """Name of the subset (configuration) of the dataset; None: the only one."""
    split: str
    """Split of the dataset that is read."""

    def read(self, dropped: Counter[str]) -> Iterator[SourceDocument]:
        """Stream one split of a Hugging Face dataset (or of a local folder of data files).

        Raises:
            DataError: The dataset cannot be reached or read, the column is missing, or its value is not text.
        """
        where = f"{self.name}@{self.revision}" + (f" ({self.subset})" if self.subset else "")
        datasets = _datasets_library()
        try:
            rows = datasets.load_dataset(
                self.name, self.subset, split=self.split, revision=self.revision, streaming=True
            )
            numbered = enumerate(rows, start=1)
            yield from self._documents(numbered, f"{self.split}:", f"{where}, {self.split} row ", dropped)
        except DataError:
            raise
        except Exception as error:  # the hub client raises exceptions of many libraries
            raise DataError(
                f"corpus.name: {where} cannot be read from the Hugging Face hub ({type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else 'no further message'}). Check name, revision, subset, "
                "split and the network. Without network: save it as Parquet elsewhere and use corpus=parquet. Datasets "
                "that need their own code are never run."
            ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class HubCorpusConfig(HubReader, CorpusSettings):
    """A Hugging Face dataset, as the corpus."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HubSource(HubReader, SourceSettings):
    """A Hugging Face dataset, as one of several sources."""

    language_column: str | None
    """Column with the language of each row, such as `de`; None: `language` says it, or none is known."""


def _datasets_library() -> Any:
    """Import the datasets library, with progress bars off; on demand, because the import takes over a second."""
    import datasets

    datasets.disable_progress_bars()
    return datasets
