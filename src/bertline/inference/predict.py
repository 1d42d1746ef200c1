"""A task's model or an encoder over a file of any size."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.errors import ArtifactError, DataError
from bertline.foundation.progress import progress
from bertline.inference.model import LoadedModel
from bertline.inference.row_files import (
    PLAIN_LAYOUT,
    Row,
    format_of,
    format_read,
    read_rows,
    rows_written_atomically,
)
from bertline.inference.served.base import FileColumns, InputColumn
from bertline.inference.served.rankings import SearchedDocuments, ServedRetrieval
from bertline.tasks.bad_rows import BadRow
from bertline.tasks.json_lines import require_whole_characters
from bertline.tasks.search_files import one_line
from bertline.tasks.stored_rows import Documents
from bertline.tasks.table_files import Record, TableLayout

__all__ = ["DocumentsFile", "FileColumns", "PredictedFile", "predict_file"]

VECTOR_COLUMN = "vector"

# Rows that are in memory at once: enough to sort by length within, a few megabytes.
_ROWS_TOGETHER = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentsFile:
    """The documents that a retrieval model searches; their vectors are held in memory.

    The format is told by the ending; in all else the file is read as the input is.
    """

    path: Path
    id_column: str | int = "id"
    """A text or a number; where the file has no such column (as a `.txt`), documents are numbered from 0."""
    text_column: str | int = "text"
    title_column: str | int = "title"
    """Read before a text that does not begin with it, where the file has it."""
    top_k: int = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedFile:
    """What became of a file."""

    num_rows: int
    num_truncated: int
    """Inputs that lost tokens because they are longer than the model reads."""
    num_documents_truncated: int
    """The same of the documents that were searched."""


@dataclass(frozen=True, slots=True)
class _Filling:
    """What is read of each row and what is added to it."""

    inputs: list[InputColumn]
    schema: pa.Schema
    fill: Callable[..., tuple[list[Row], int]]
    num_documents_truncated: int = 0


def predict_file(
    model: LoadedModel,
    source: Path,
    target: Path,
    *,
    columns: FileColumns | None = None,
    layout: TableLayout = PLAIN_LAYOUT,
    batch_size: int = 32,
    output: Literal["predictions", "vectors"] = "predictions",
    documents: DocumentsFile | None = None,
) -> PredictedFile:
    """Read rows, add what the model says of each, and write them, in constant memory.

    All columns of the input stay. Added are, by the kind of task: `predicted` and `probability` (classification;
    lists with several labels), `predicted` (regression), `entities` (token classification: a list of type, text,
    start, end, score), `answer`, `answer_start` and `score` (question answering), `document_ids` and `scores`
    (retrieval), `order` and `scores` (re-ranking), `summary` and `sentences` (summarisation). `vectors` adds
    `vector`. Lists stand in .csv and .tsv as JSON. The formats are told by the endings: .txt (a line is a text),
    .csv, .tsv, .jsonl, each also with .gz, and .parquet; that of the input may be named. The output appears under its
    name when it is complete, and not before.

    Args:
        model: With a task, or any for `vectors`.
        source: The input.
        target: The output.
        columns: Which columns are read.
        layout: How the bytes of the input, and of the documents, are read.
        batch_size: Texts that go through the model at once, for `vectors`; a task has its own.
        output: What is added.
        documents: What a retrieval model searches.

    Raises:
        DataError: No rows, a missing column, a text that is no string, a malformed or undecodable line: named by
            file and line. An output column that the input already has.
        ArtifactError: The model has no task.
        MachineError: The output cannot be written.
    """
    columns = columns or FileColumns()
    if target.exists() and source.exists() and target.samefile(source):
        raise DataError(f"{target} is the input itself. Choose another name for the output.")
    if output == "vectors":
        filling = _vectors(model, columns, batch_size)
    else:
        filling = _task_filling(model, columns, layout, documents)
    num_rows = num_truncated = 0
    records = progress(read_rows(source, layout), description=f"{target.name}: rows")
    with rows_written_atomically(target, schema=_schema(source, layout, target, filling.schema)) as append:
        for chunk in _chunks(records):
            rows, truncated = _with_output(chunk, filling)
            append(rows)
            num_rows += len(rows)
            num_truncated += truncated
        if not num_rows:
            raise DataError(f"{source} has no rows. Give a file with at least one text.")
    return PredictedFile(
        num_rows=num_rows,
        num_truncated=num_truncated,
        num_documents_truncated=filling.num_documents_truncated,
    )


def _vectors(model: LoadedModel, columns: FileColumns, batch_size: int) -> _Filling:
    def fill(texts: list[str]) -> tuple[list[Row], int]:
        vectors, truncated = model.text_vectors(texts, batch_size=batch_size)
        return [{VECTOR_COLUMN: vector.tolist()} for vector in vectors], truncated

    schema = pa.schema([(VECTOR_COLUMN, pa.list_(pa.float32()))])
    return _Filling([InputColumn(columns.text, "text")], schema, fill)


def _task_filling(
    model: LoadedModel, columns: FileColumns, layout: TableLayout, documents: DocumentsFile | None
) -> _Filling:
    task = model.task
    if task is None:
        raise ArtifactError(
            f"{model.name} cannot classify or answer: it has no task. Load artifacts/export/TASK instead, or ask for "
            "vectors (task_name=embed)."
        )
    num_documents_truncated = 0
    if isinstance(task, ServedRetrieval):
        if documents is None:
            raise DataError(f"{model.name} is a retrieval model: name the documents it searches with documents=FILE.")
        task, num_documents_truncated = _searching(task, documents, replace(layout, format="auto"))
    elif documents is not None:
        raise DataError(f"documents are for retrieval; {model.name} is a model for {model.kind}.")

    def fill(*inputs: list[Any]) -> tuple[list[Row], int]:
        before = task.num_cut
        return task.file_outputs(*inputs), task.num_cut - before

    return _Filling(task.file_inputs(columns), task.output_schema(), fill, num_documents_truncated)


def _searching(task: ServedRetrieval, documents: DocumentsFile, layout: TableLayout) -> tuple[SearchedDocuments, int]:
    """The task with its documents, and how many of these lost tokens."""
    ids: list[str] = []
    vectors: list[np.ndarray] = []
    before = task.num_documents_cut
    records = progress(read_rows(documents.path, layout), description=f"{documents.path.name}: documents")
    for chunk in _chunks(records):
        of_chunk = _documents_of(chunk, documents, first_number=len(ids))
        texts = of_chunk.texts_read()
        ids += of_chunk.ids
        vectors.append(task.document_vectors(texts))
    if not ids:
        raise DataError(f"{documents.path} has no rows. Give a file with at least one document.")
    return SearchedDocuments(task, ids, np.concatenate(vectors), documents.top_k), task.num_documents_cut - before


def _documents_of(chunk: list[Record], documents: DocumentsFile, *, first_number: int) -> Documents:
    """The documents as a task's collection holds them, so that what is read of each is the same text."""
    ids, titles, texts = [], [], []
    for number, record in enumerate(chunk, start=first_number):
        identity = record.values.get(documents.id_column)
        has_title = record.values.get(documents.title_column) is not None
        title = _cell(record, InputColumn(documents.title_column, "text")) if has_title else ""
        ids.append(str(number if identity is None else identity))
        titles.append(one_line(title))
        texts.append(one_line(_cell(record, InputColumn(documents.text_column, "text"))))
    return Documents(ids, titles, texts)


def _with_output(chunk: list[Record], filling: _Filling) -> tuple[list[Row], int]:
    for name in filling.schema.names:
        if taken := next((record for record in chunk if name in record.values), None):
            raise DataError(f"{taken.where}: the input already has a column {name!r}. Rename it.")
    inputs = [[_cell(record, column) for record in chunk] for column in filling.inputs]
    added, truncated = filling.fill(*inputs)
    rows = [
        {**{str(key): value for key, value in record.values.items()}, **more}
        for record, more in zip(chunk, added, strict=True)
    ]
    return rows, truncated


def _chunks(records: Iterator[Record]) -> Iterator[list[Record]]:
    while chunk := list(itertools.islice(records, _ROWS_TOGETHER)):
        yield chunk


def _cell(record: Record, column: InputColumn) -> Any:
    if column.name not in record.values:
        found = ", ".join(str(name) for name in record.values)
        raise DataError(
            f"{record.where}: no column {column.name!r}; found {found}. Name the column that has the {column.holds}."
        )
    value = record.values[column.name]
    if column.holds == "texts" and isinstance(value, str):
        value = _list_in(value, value)
        try:
            require_whole_characters(value)
        except BadRow as bad:
            raise DataError(f"{record.where}: column {column.name!r}: {bad}. Mend or drop the row.") from bad
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    fits = {"text": isinstance(value, str), "texts": is_list, "text or texts": is_list or isinstance(value, str)}
    if not fits[column.holds]:
        expected = {"text": "a text", "texts": "a list of texts (in CSV as JSON)"}.get(
            column.holds, "a text or a list of texts"
        )
        raise DataError(
            f"{record.where}: column {column.name!r} is {value!r}; expected {expected}. Mend or drop the row."
        )
    if not column.may_be_empty and not "".join(value).strip():
        raise DataError(f"{record.where}: column {column.name!r} is empty. Mend or drop the row.")
    return value


def _list_in(text: str, otherwise: Any) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return otherwise


def _schema(source: Path, layout: TableLayout, target: Path, added: pa.Schema) -> pa.Schema | None:
    """The output's Parquet schema where the input has one, so that types stay as they are."""
    if {format_read(source, layout), format_of(target)} != {"parquet"} or not source.is_file():
        return None
    try:
        schema = pq.read_schema(source)
    except pa.ArrowInvalid as error:
        raise DataError(f"{source} is not a whole Parquet file ({error}). Copy it again.") from error
    for field in added:
        schema = schema.append(field)
    return schema
