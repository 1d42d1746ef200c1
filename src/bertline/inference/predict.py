"""Prediction of a task or of text vectors for the rows of a file of any size."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from bertline.foundation.errors import ArtifactError, DataError
from bertline.foundation.files import sha256_of_file
from bertline.foundation.progress import progress, say
from bertline.inference.documents_file import DocumentsFile, searching
from bertline.inference.growing_file import GrowingFile
from bertline.inference.model import LoadedModel
from bertline.inference.parallel_rows import map_in_threads, num_threads_for, one_thread_each
from bertline.inference.predictor import FileColumns, InputColumn, TaskPredictor
from bertline.inference.row_files import (
    PLAIN_LAYOUT,
    Block,
    Row,
    RowsDigest,
    blocks_of,
    cell,
    format_of,
    format_read,
    read_rows,
)
from bertline.kinds.retrieval.serving import RetrievalPredictor
from bertline.modeling.packed_linears import packed_linears
from bertline.modeling.weight_files import digest_of_weights
from bertline.tasks.table_files import Record, TableLayout
from bertline.tokenization.tokenizer import Tokenizer

__all__ = ["DocumentsFile", "FileColumns", "PredictedFile", "Predicting", "predict_file"]

VECTOR_COLUMN = "vector"


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicting:
    """Options of prediction."""

    batch_size: int = 32
    """Texts per batch, for vectors; for a task the batch size depends on the device."""
    num_threads: int | None = None
    """Number of threads on a CPU; None takes all cores (or OMP_NUM_THREADS)."""
    num_probabilities: int | None = None
    """Number of labels that a classifier lists with their probabilities, most likely first; None lists all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedFile:
    """Counts of a predicted file."""

    num_rows: int
    num_truncated: int
    """Number of inputs truncated to the model's maximum length."""
    num_documents_truncated: int
    """Number of truncated documents among those searched."""
    num_resumed: int
    """Number of rows that an earlier run had already written."""


Fill = Callable[..., tuple[list[Row], int]]
"""Function from the input columns of some rows to the columns added to each row and the number of truncated inputs."""


@dataclass(frozen=True, slots=True)
class _Filling:
    """Columns that are read from each row, schema of the columns added to it, and one function per thread."""

    inputs: list[InputColumn]
    schema: pa.Schema
    workers: list[Fill]
    num_documents_truncated: int = 0


def predict_file(
    model: LoadedModel,
    source: Path,
    target: Path,
    *,
    columns: FileColumns | None = None,
    layout: TableLayout = PLAIN_LAYOUT,
    how: Predicting | None = None,
    output: Literal["predictions", "vectors"] = "predictions",
    documents: DocumentsFile | None = None,
) -> PredictedFile:
    """Read rows, add the model's predictions to each, and write them, in constant memory.

    The output keeps all columns and the order of the rows of the input. The columns added depend on the kind of task:
    `predicted`, `probability` and `probabilities` (classification; lists if multi-label), `predicted` (regression),
    `entities` (token classification: a list of type, text, start, end, score), `answer`, `answer_start` and `score`
    (question answering), `document_ids` and `scores` (retrieval), `order` and `scores` (re-ranking), `summary` and
    `sentences` (summarisation), `predicted`, `probability` and `pseudo_perplexity` (fill_mask). `vectors` adds
    `vector`. Lists and mappings are written as JSON in .csv and .tsv. The extensions give the formats: .txt (one text
    per line, input only), .csv, .tsv, .jsonl, each also with .gz, and .parquet; `layout` may set that of the input.

    The output is written block by block. After a crash, or an error in the input, the same call resumes after the rows
    already written, if they were made from the same input, model and options (`growing_file`). A row's predictions
    depend neither on resuming nor on the number of threads.

    Args:
        model: Model with a task; for `vectors`, any model.
        source: Path of the input.
        target: Path of the output.
        columns: Names of the columns to read.
        layout: Reading options of the input; they also apply to the documents, except for the format.
        how: Options of prediction.
        output: Whether to add predictions or vectors.
        documents: Documents that a retrieval model searches.

    Raises:
        DataError: The input has no rows, a missing column, a text that is not a string, or a malformed or undecodable
            line (the message names file and line); it already has an output column; or an unfinished output was made
            from something else.
        ArtifactError: The model has no task.
        MachineError: The output cannot be written.
    """
    columns, how = columns or FileColumns(), how or Predicting()
    for path, what in ((source, "the input"), (None if documents is None else documents.path, "the documents")):
        if path is not None and target.exists() and path.exists() and target.samefile(path):
            raise DataError(f"{target} is {what} itself. Choose another name for the output.")
    made_from = {"model": _digest_of(model), "options": repr((output, columns, how.num_probabilities))}
    if documents is not None:
        # The digest of the rows covers the layout of the input, but not that of the documents.
        made_from["options"] += repr((layout, documents.path.suffixes, replace(documents, path=Path())))
        made_from["documents"] = sha256_of_file(documents.path) if documents.path.is_file() else ""
    num_threads = num_threads_for(model.device, how.num_threads)
    with one_thread_each(model.device), packed_linears(model.model):
        if output == "vectors":
            filling = _vectors(model, columns, how, num_threads)
        else:
            filling = _task_filling(model, columns, layout, documents, how, num_threads)
        schema = _schema(source, layout, target)
        with GrowingFile(target, made_from=made_from, added=filling.schema, schema=schema) as growing:
            return _write(source, layout, growing, filling, target.name)


def _write(source: Path, layout: TableLayout, growing: GrowingFile, filling: _Filling, name: str) -> PredictedFile:
    records, digest = read_rows(source, layout), RowsDigest()
    num_resumed = growing.progress.num_rows
    if num_resumed:
        for _, record in zip(range(num_resumed), records, strict=False):
            digest.add(record)
        if digest.hexdigest() != growing.progress.rows_digest:
            raise growing.cannot_resume(f"the first {num_resumed:,} rows of {source} are not those it was made from")
        say(f"{name}: {num_resumed:,} rows are in place from an earlier start")

    def work(fill: Fill) -> Callable[[Block], tuple[Block, list[Row], int]]:
        return lambda block: (block, *_with_output(block.records, filling, fill))

    def written() -> Iterator[None]:
        for block, rows, truncated in map_in_threads(
            [work(fill) for fill in filling.workers], blocks_of(records, digest)
        ):
            growing.append(rows, num_truncated=truncated, rows_digest=block.digest)
            yield from (None for _ in rows)

    for _ in progress(written(), description=f"{name}: rows"):
        pass
    if not growing.progress.num_rows:
        raise DataError(f"{source} has no rows. Give a file with at least one text.")
    growing.finish()
    return PredictedFile(
        num_rows=growing.progress.num_rows,
        num_truncated=growing.progress.num_truncated,
        num_documents_truncated=filling.num_documents_truncated,
        num_resumed=num_resumed,
    )


def _vectors(model: LoadedModel, columns: FileColumns, how: Predicting, num_threads: int) -> _Filling:
    def filler() -> Fill:
        of_thread = copy.copy(model)
        # Encoding temporarily changes a setting of the tokenizer, so each thread has its own.
        of_thread.tokenizer = Tokenizer(model.tokenizer.vocabulary)

        def fill(texts: list[str]) -> tuple[list[Row], int]:
            vectors, truncated = of_thread.text_vectors(texts, batch_size=how.batch_size)
            return [{VECTOR_COLUMN: vector.tolist()} for vector in vectors], truncated

        return fill

    schema = pa.schema([(VECTOR_COLUMN, pa.list_(pa.float32()))])
    return _Filling([InputColumn(columns.text, "text")], schema, [filler() for _ in range(num_threads)])


def _task_filling(
    model: LoadedModel,
    columns: FileColumns,
    layout: TableLayout,
    documents: DocumentsFile | None,
    how: Predicting,
    num_threads: int,
) -> _Filling:
    task = model.task
    if task is None:
        raise ArtifactError(
            f"{model.name} cannot classify or answer: it has no task. Load artifacts/export/TASK instead, or ask for "
            "vectors (task_name=embed)."
        )
    num_documents_truncated = 0
    if isinstance(task, RetrievalPredictor):
        if documents is None:
            raise DataError(f"{model.name} is a retrieval model: name the documents it searches with documents=FILE.")
        layout = replace(layout, format="auto")
        task, num_documents_truncated = searching(task, documents, layout, num_threads=num_threads)
    elif documents is not None:
        raise DataError(f"documents are for retrieval; {model.name} is a model for {model.kind}.")
    tasks = [task.for_thread() for _ in range(num_threads)]
    for each in tasks:
        each.num_probabilities = how.num_probabilities
    return _Filling(
        task.file_inputs(columns), task.output_schema(), [_filler(each) for each in tasks], num_documents_truncated
    )


def _filler(task: TaskPredictor) -> Fill:
    def fill(*inputs: list[Any]) -> tuple[list[Row], int]:
        before = task.num_cut
        return task.file_outputs(*inputs), task.num_cut - before

    return fill


def _with_output(records: list[Record], filling: _Filling, fill: Fill) -> tuple[list[Row], int]:
    for name in filling.schema.names:
        if taken := next((record for record in records if name in record.values), None):
            raise DataError(f"{taken.where}: the input already has a column {name!r}. Rename it.")
    inputs = [[cell(record, column) for record in records] for column in filling.inputs]
    added, truncated = fill(*inputs)
    rows = [
        {**{str(key): value for key, value in record.values.items()}, **more}
        for record, more in zip(records, added, strict=True)
    ]
    return rows, truncated


def _digest_of(model: LoadedModel) -> str:
    """Return the digest of everything that determines the model's predictions."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((model.max_length, model.labels, model.tokenizer.vocabulary)).encode())
    if model.task is not None:
        digest.update(repr((model.task.kind.config, dict(model.task.calibration))).encode())
    digest.update(digest_of_weights(model.model).encode())
    return digest.hexdigest()


def _schema(source: Path, layout: TableLayout, target: Path) -> pa.Schema | None:
    """Return the input's schema if input and output are Parquet, so that types are kept; otherwise None."""
    if {format_read(source, layout), format_of(target)} != {"parquet"} or not source.is_file():
        return None
    try:
        return pq.read_schema(source)
    except pa.ArrowInvalid as error:
        raise DataError(f"{source} is not a whole Parquet file ({error}). Copy it again.") from error
