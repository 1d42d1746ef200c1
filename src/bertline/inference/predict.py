"""A classifier or an encoder over a file of any size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.errors import DataError
from bertline.foundation.progress import progress
from bertline.inference.model import LoadedModel
from bertline.inference.row_files import TEXT_COLUMN, Row, format_of, read_rows, rows_written_atomically
from bertline.tasks.table_files import Record

LABEL_COLUMN = "predicted"
PROBABILITY_COLUMN = "probability"
VECTOR_COLUMN = "vector"

# Rows that are in memory at once: enough to sort by length within, a few megabytes.
_ROWS_TOGETHER = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class FileColumns:
    """Which columns of the input are read. `.txt` files have the one column `text`."""

    text: str = TEXT_COLUMN
    text_pair: str | None = None
    """The second text, for a task of pairs."""
    encoding: str = "utf-8"


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedFile:
    """What became of a file."""

    num_rows: int
    num_truncated: int
    """Texts that lost tokens because they are longer than the model reads."""


def predict_file(
    model: LoadedModel,
    source: Path,
    target: Path,
    *,
    columns: FileColumns | None = None,
    batch_size: int = 32,
    output: Literal["labels", "vectors"] = "labels",
) -> PredictedFile:
    """Read rows, add what the model says of each, and write them, in constant memory.

    All columns of the input stay. `labels` adds `predicted` (the likeliest label) and `probability`; `vectors` adds
    `vector` (the mean over the tokens). The formats are told by the endings: .txt (a line is a text), .csv, .tsv,
    .jsonl, each also with .gz, and .parquet. The output appears under its name when it is complete, and not before.

    Raises:
        DataError: No rows, a missing column, a text that is no string, a malformed or undecodable line: named by
            file and line. An output column that the input already has.
        ArtifactError: The model is not a classifier.
        MachineError: The output cannot be written.
    """
    columns = columns or FileColumns()
    if target.exists() and source.exists() and target.samefile(source):
        raise DataError(f"{target} is the input itself. Choose another name for the output.")
    added = [LABEL_COLUMN, PROBABILITY_COLUMN] if output == "labels" else [VECTOR_COLUMN]
    num_rows = num_truncated = 0
    records = progress(read_rows(source, encoding=columns.encoding), description=f"{target.name}: rows")
    with rows_written_atomically(target, schema=_schema(source, target, output)) as append:
        for chunk in _chunks(records):
            rows, truncated = _with_output(model, chunk, columns, added, batch_size)
            append(rows)
            num_rows += len(rows)
            num_truncated += truncated
        if not num_rows:
            raise DataError(f"{source} has no rows. Give a file with at least one text.")
    return PredictedFile(num_rows=num_rows, num_truncated=num_truncated)


def _with_output(
    model: LoadedModel, chunk: list[Record], columns: FileColumns, added: list[str], batch_size: int
) -> tuple[list[Row], int]:
    for name in added:
        if taken := next((record for record in chunk if name in record.values), None):
            raise DataError(f"{taken.where}: the input already has a column {name!r}. Rename it.")
    texts = [_text(record, columns.text) for record in chunk]
    pair_column = columns.text_pair
    pairs = None if pair_column is None else [_text(record, pair_column) for record in chunk]
    rows = [{str(key): value for key, value in record.values.items()} for record in chunk]
    if added == [VECTOR_COLUMN]:
        vectors, truncated = model.text_vectors(texts, batch_size=batch_size)
        return [{**row, VECTOR_COLUMN: vector.tolist()} for row, vector in zip(rows, vectors, strict=True)], truncated
    probabilities, truncated = model.label_probabilities(texts, pairs, batch_size=batch_size)
    best = probabilities.argmax(1)
    scores = probabilities[np.arange(len(best)), best]
    return [
        {**row, LABEL_COLUMN: model.labels[label], PROBABILITY_COLUMN: float(score)}
        for row, label, score in zip(rows, best, scores, strict=True)
    ], truncated


def _chunks(records: Iterator[Record]) -> Iterator[list[Record]]:
    while chunk := list(itertools.islice(records, _ROWS_TOGETHER)):
        yield chunk


def _text(record: Record, column: str) -> str:
    if column not in record.values:
        found = ", ".join(str(name) for name in record.values)
        raise DataError(f"{record.where}: no column {column!r}; found {found}. Name the column that has the text.")
    text = record.values[column]
    if not isinstance(text, str):
        raise DataError(f"{record.where}: column {column!r} is {text!r}; expected a text. Mend or drop the row.")
    return text


def _schema(source: Path, target: Path, output: Literal["labels", "vectors"]) -> pa.Schema | None:
    """The output's Parquet schema where the input has one, so that types stay as they are."""
    if {format_of(source), format_of(target)} != {"parquet"} or not source.is_file():
        return None
    try:
        schema = pq.read_schema(source)
    except pa.ArrowInvalid as error:
        raise DataError(f"{source} is not a whole Parquet file ({error}). Copy it again.") from error
    if output == "vectors":
        return schema.append(pa.field(VECTOR_COLUMN, pa.list_(pa.float32())))
    return schema.append(pa.field(LABEL_COLUMN, pa.string())).append(pa.field(PROBABILITY_COLUMN, pa.float64()))
