"""Documents from the rows of JSONL, CSV and Parquet files, and of Hugging Face datasets.

JSONL and CSV are read one record at a time, so that an error names its line and a single bad record can be left out.
Parquet files and hub datasets are streamed by the `datasets` library, without a copy in a cache; of Parquet files, only
the needed columns are read.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bertline.corpus.config import HubCorpusConfig, TableCorpusConfig
from bertline.corpus.document import SourceDocument
from bertline.corpus.input_files import InputFile, Line, find_files, read_lines
from bertline.corpus.text_files import paragraphs_of
from bertline.foundation.errors import DataError

_SUFFIXES = {"jsonl": (".jsonl", ".ndjson", ".json"), "csv": (".csv", ".tsv"), "parquet": (".parquet",)}
_ENCODING = "utf-8"
_MAX_CELL_CHARACTERS = 200_000_000
_SHOWN_COLUMNS = 20
_PARQUET_BATCH_ROWS = 1_000


def read_tables(config: TableCorpusConfig, dropped: Counter[str]) -> Iterator[SourceDocument]:
    """Read files of one format, one document per row; rows without text are counted and left out.

    Raises:
        DataError: A file or record is not in the format, the column is missing, or its value is not text.
    """
    read = {"jsonl": _read_jsonl, "csv": _read_csv, "parquet": _read_parquet}[config.kind]
    for file in find_files(config.path, _SUFFIXES[config.kind], dropped):
        empty = True
        for number, row in read(file, config, dropped):
            empty = False
            document = _document(row, f"{file.name}:{number}", f"{file.path}:{number}", config, dropped)
            if document is not None:
                yield document
        if empty:
            dropped["files/empty"] += 1


def read_hub(config: HubCorpusConfig, dropped: Counter[str]) -> Iterator[SourceDocument]:
    """Stream one split of a Hugging Face dataset (or of a local folder of data files).

    Raises:
        DataError: The dataset cannot be reached or read, the column is missing, or its value is not text.
    """
    where = f"{config.name}@{config.revision}" + (f" ({config.subset})" if config.subset else "")
    datasets = _datasets()
    try:
        rows = datasets.load_dataset(
            config.name, config.subset, split=config.split, revision=config.revision, streaming=True
        )
        for number, row in enumerate(rows, start=1):
            document = _document(
                row, f"{config.split}:{number}", f"{where}, {config.split} row {number}", config, dropped
            )
            if document is not None:
                yield document
    except DataError:
        raise
    except Exception as error:  # the hub client raises exceptions of many libraries
        raise DataError(
            f"corpus.name: {where} cannot be read from the Hugging Face hub ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else 'no further message'}). Check name, revision, subset, "
            "split and the network. Without network: save it as Parquet elsewhere and use corpus=parquet. Datasets "
            "that need their own code are never run."
        ) from error


def _document(
    row: Mapping[str, Any], key: str, where: str, config: TableCorpusConfig | HubCorpusConfig, dropped: Counter[str]
) -> SourceDocument | None:
    """Convert a row to a document; `key` becomes its id (the same on every machine), `where` is for messages."""
    for role, column in (("text_column", config.text_column), ("group_column", config.group_column)):
        if column is not None and column not in row:
            names = ", ".join(list(row)[:_SHOWN_COLUMNS]) or "none"
            raise DataError(f"{where}: no column {column!r} (corpus.{role}). Columns here: {names}.")
    text = row[config.text_column]
    if text is None or text == "":
        dropped["documents/no_text"] += 1
        return None
    if not isinstance(text, str):
        raise DataError(
            f"{where}: column {config.text_column!r} (corpus.text_column) holds {type(text).__name__} "
            f"{str(text)[:60]!r}, expected text."
        )
    group = row[config.group_column] if config.group_column is not None else None
    return SourceDocument(key, "" if group is None else f"{config.group_column}={group}", tuple(_paragraphs(text)))


def _paragraphs(text: str) -> Iterator[str]:
    return paragraphs_of(text.splitlines())


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
                        f"({', '.join(header[:_SHOWN_COLUMNS])}). Is a delimiter or quote in the text not quoted?"
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
    datasets = _datasets()
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


def _datasets() -> Any:
    """Import the datasets library, with progress bars off; on demand, because the import takes over a second."""
    import datasets

    datasets.disable_progress_bars()
    return datasets
