"""Prediction of a task or of text vectors for the rows of a file of any size."""

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from bertline.corpus.files import naming
from bertline.corpus.tables import TableLayout, TableRow, column_in
from bertline.foundation.errors import ArtifactError, DataError
from bertline.foundation.parallel import ordered_map
from bertline.foundation.progress import progress, say, warn
from bertline.inference import row_files
from bertline.inference.model import LoadedModel
from bertline.kinds.base import FileColumns, InputColumn
from bertline.kinds.predictor import RowPredictor, TaskPredictor
from bertline.kinds.retrieval import Retrieval, VectorIndex, best_hits
from bertline.tasks.cells import one_line
from bertline.tasks.stored_rows import Documents

__all__ = ["DocumentsFile", "FileColumns", "PredictedFile", "predict_file"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedFile:
    """Counts of a predicted file."""

    num_rows: int
    num_truncated: int
    """Number of inputs truncated to the model's maximum length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentsFile:
    """File of the documents that a retrieval model searches; their vectors are kept in memory.

    The extension gives the format; the other reading options are those of the input.
    """

    path: Path
    id_column: str | int = "id"
    """Column of the ids, text or numbers; without it (as in a `.txt`), documents are numbered from 0."""
    text_column: str | int = "text"
    title_column: str | int = "title"
    """Column of the titles, if the file has it; a title is prepended to a text that does not start with it."""
    top_k: int = 10


class VectorPredictor(RowPredictor):
    """Vectors of texts, as `LoadedModel.embed` computes them."""

    def __init__(self, model: LoadedModel, *, batch_size: int = 32) -> None:
        self.tokenizer, self._model, self._batch_size = model.tokenizer, model, batch_size

    def for_thread(self) -> Self:
        copied = super().for_thread()
        copied._model = copy.copy(self._model)
        copied._model.tokenizer = copied.tokenizer
        return copied

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return [InputColumn(columns.text, "text")]

    def output_schema(self) -> pa.Schema:
        return pa.schema([("vector", pa.list_(pa.float32()))])

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        vectors, truncated = self._model.text_vectors(inputs[0], batch_size=self._batch_size)
        self.num_cut += truncated
        return [{"vector": vector.tolist()} for vector in vectors]


class SearchedDocuments(TaskPredictor):
    """Retrieval model with a fixed set of documents, for a file of queries."""

    def __init__(self, task: TaskPredictor, ids: list[str], vectors: NDArray[np.float32], top_k: int) -> None:
        super().__init__(task.kind, task.calibration, task.model, task.tokenizer)
        self._ids, self._index, self._top_k = ids, VectorIndex(vectors), top_k

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        hits_of_queries = best_hits(self._index, self.kind.query_vectors(self, inputs[0]), self._ids, self._top_k)
        return [
            {"document_ids": [self._ids[hit.number] for hit in hits], "scores": [hit.score for hit in hits]}
            for hits in hits_of_queries
        ]


class _PerThread(threading.local):
    """A copy of a predictor for each thread: encoding changes a setting of the tokenizer for a moment."""

    def __init__(self, predictor: RowPredictor) -> None:
        self.predictor: Any = predictor.for_thread()


@contextmanager
def prediction_threads(device: torch.device, asked: int | None) -> Iterator[int]:
    """Yield the number of prediction threads; within the context, each of them computes on one core.

    One thread per block of rows is faster than all threads on one block: they do not wait for each other in the many
    short operations of a small model, and Python's overhead is parallelized too. They share the model's weights.

    On a CPU the number is `asked`, or PyTorch's default (OMP_NUM_THREADS or all cores). Other devices compute one batch
    at a time.
    """
    if device.type != "cpu":
        yield 1
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before if asked is None else asked
    finally:
        torch.set_num_threads(before)


def predict_file(
    model: LoadedModel,
    source: Path,
    target: Path,
    *,
    columns: FileColumns | None = None,
    layout: TableLayout = row_files.PLAIN_LAYOUT,
    output: Literal["predictions", "vectors"] = "predictions",
    documents: DocumentsFile | None = None,
    batch_size: int = 32,
    num_threads: int | None = None,
    num_probabilities: int | None = None,
    coverage: float | None = None,
    escape_formulas: bool = False,
) -> PredictedFile:
    """Read rows, add the model's predictions to each, and write them, in constant memory.

    The output keeps all columns and the order of the rows of the input. The columns added depend on the kind of task:
    `predicted`, `probability` and `probabilities` (classification; lists if multi-label; with `coverage` also
    `label_set`, a list), `predicted` (regression),
    `entities` (token classification: a list of type, text, start, end, score), `answer`, `answer_start` and `score`
    (question answering), `document_ids` and `scores` (retrieval), `order` and `scores` (re-ranking), `summary` and
    `sentences` (summarisation). `vectors` adds `vector`. Lists and mappings are written as JSON in .csv and .tsv. A
    file is read twice for a new .parquet, whose types and keys are those of all rows. No value is changed. The
    extensions give the formats: .txt (a row for each line, with the columns `line` and `text`; input only), .csv, .tsv,
    .jsonl, each also with .gz, and .parquet; `layout` may set that of the input.

    A complete output of that name stays until the new one is complete. A row's predictions do not depend on the number
    of threads.

    Args:
        model: Model with a task; for `vectors`, any model.
        layout: Reading options of the input; all but the format also apply to the documents.
        documents: Documents that a retrieval model searches.
        batch_size: Texts per batch, for vectors; for a task the batch size depends on the device.
        num_threads: Number of threads on a CPU; None takes all cores (or OMP_NUM_THREADS).
        num_probabilities: Number of labels that a classifier lists with their probabilities, most likely first; None
            lists all.
        coverage: Share of texts for which a set of labels is to hold the right one; None: no sets.
        escape_formulas: Whether a `'` is put before texts of .csv and .tsv that begin as a formula of a spreadsheet
            does.

    Raises:
        DataError: The input cannot be read, or has no rows, a missing column, a text that is not a string, or a
            malformed or undecodable line (the message names file and line); it already has an output column, or a value
            that the output's format cannot hold.
        ArtifactError: The model has no task.
        MachineError: The output cannot be written.
    """
    columns = columns or FileColumns()
    for path, what in ((source, "the input"), (None if documents is None else documents.path, "the documents")):
        if path is not None and target.exists() and path.exists() and target.samefile(path):
            raise DataError(f"{target} is {what} itself. Choose another name for the output.")
    row_files.require_output_format(target)
    with prediction_threads(model.device, num_threads) as threads:
        predictor: RowPredictor
        if output == "vectors":
            predictor = VectorPredictor(model, batch_size=batch_size)
        else:
            predictor = _task_of(model, layout, documents, coverage, threads)
            predictor.num_probabilities = num_probabilities
        blocks = row_files.blocks_of(row_files.file_rows(source, layout))
        first = next(blocks, None)
        if first is None:
            raise DataError(f"{source} has no rows. Give a file with at least one text.")
        columns = FileColumns(**{name: column_in(first[0], column) for name, column in asdict(columns).items()})
        inputs = predictor.file_inputs(columns)
        reads = _columns_read(first[0], inputs, columns)
        say(f"{source.name}: {'a text for each line' if row_files.format_read(source, layout) == 'txt' else reads}")
        added = predictor.output_schema()
        schema = pa.schema([*_schema(source, layout), *added]) if row_files.format_of(target) == "parquet" else None
        names = (*row_files.named_values(first[0]), *added.names) if schema is None else tuple(schema.names)
        rows_output = row_files.RowsOutput(target, names, schema, escape_formulas)
        own, counts = _PerThread(predictor), list[tuple[int, int]]()

        def predict(block: list[TableRow]) -> tuple[Any, tuple[int, int]]:
            rows, num_truncated = _with_output(own.predictor, inputs, block)
            return rows_output.encoded(rows, block), (len(rows), num_truncated)

        def predicted() -> Iterator[Any]:
            done = ordered_map(predict, chain([first], blocks), num_workers=threads, in_threads=True)
            with naming(str(source)):  # otherwise an error of reading would be one of writing
                for encoded, count in progress(done, description=f"{target.name}: blocks of rows"):
                    counts.append(count)
                    yield encoded

        rows_output.write(predicted())
    num_rows, num_truncated = map(sum, zip(*counts, strict=True))
    return PredictedFile(num_rows=num_rows, num_truncated=num_truncated)


def _columns_read(first: TableRow, inputs: list[InputColumn], columns: FileColumns) -> str:
    """Return which columns are read, by the arguments of the command line that name them, and which are not."""
    named = {getattr(columns, each.name): f"{each.name}_column" for each in reversed(fields(columns))}
    argument = {column.name: named[column.name] for column in inputs}
    reads = ", ".join(argument.values())
    for each in fields(columns):
        if (name := getattr(columns, each.name)) not in (None, each.default, *argument):
            raise DataError(f"{each.name}_column is {name!r}, and this model reads {reads} only.")
    for column in inputs:
        if column.name not in first.values:
            raise DataError(
                f"{first.where}: no column {column.name!r}; found {', '.join(map(str, first.values))}. Name the column "
                f"that has the {column.holds}: {argument[column.name]}=COLUMN."
            )
    left_out = ", ".join(str(name) for name in first.values if name not in argument)
    reads = "reads " + ", ".join(f"{key}={name}" for name, key in argument.items())
    return f"{reads}; not read: {left_out}" if left_out else reads


def _task_of(
    model: LoadedModel, layout: TableLayout, documents: DocumentsFile | None, coverage: float | None, num_threads: int
) -> TaskPredictor:
    if model.task is None:
        raise ArtifactError(
            f"{model.name} cannot classify or answer: it has no task. Load artifacts/export/TASK instead, or ask for "
            "vectors (task_name=embed)."
        )
    if isinstance(model.task.kind, Retrieval):
        if documents is None:
            raise DataError(f"{model.name} is a retrieval model: name the documents it searches with documents=FILE.")
        return _searching(
            model.task.covering(coverage), documents, replace(layout, format="auto"), num_threads=num_threads
        )
    if documents is not None:
        raise DataError(f"documents are for retrieval; {model.name} is a model for {model.kind}.")
    return model.task.covering(coverage).for_thread()


def _searching(
    task: TaskPredictor, documents: DocumentsFile, layout: TableLayout, *, num_threads: int
) -> SearchedDocuments:
    ids: list[str] = []
    is_text = row_files.format_read(documents.path, layout) == "txt"
    rows = row_files.file_rows(documents.path, layout)
    written = (row for row in rows if not is_text or row.values[row_files.TEXT_COLUMN].strip())
    records = progress(written, description=f"{documents.path.name}: documents")

    def read() -> Iterator[list[str]]:
        for block in row_files.blocks_of(records):
            titles, texts = [], []
            for record in block:
                asked = (documents.id_column, documents.title_column, documents.text_column)
                id_column, title_column, text_column = (column_in(record, column) for column in asked)
                identity, title = record.values.get(id_column), record.values.get(title_column)
                ids.append(str(len(ids) if identity is None else identity))
                column = InputColumn(title_column, "text")
                titles.append("" if title is None else one_line(row_files.cell(record, column)))
                texts.append(one_line(row_files.cell(record, InputColumn(text_column, "text"))))
            # In the format of a task's collection, so that the model sees the same text as there.
            yield Documents(ids[-len(texts) :], titles, texts).texts_read()

    own = _PerThread(task)

    def encode(texts: list[str]) -> tuple[NDArray[np.float32], int]:
        before = own.predictor.num_documents_cut
        vectors = task.kind.document_vectors(own.predictor, texts)
        return vectors, own.predictor.num_documents_cut - before

    encoded = list(ordered_map(encode, read(), num_workers=num_threads, in_threads=True))
    if not ids:
        raise DataError(f"{documents.path} has no rows. Give a file with at least one document.")
    if num_cut := sum(cut for _, cut in encoded):
        warn(f"{documents.path.name}: {num_cut:,} documents are cut to what the model reads")
    return SearchedDocuments(task, ids, np.concatenate([vectors for vectors, _ in encoded]), documents.top_k)


def _with_output(
    predictor: RowPredictor, inputs: list[InputColumn], block: list[TableRow]
) -> tuple[list[row_files.Row], int]:
    """Return the rows of a block with the columns that are added to them, and the number of truncated rows."""
    for name in predictor.output_schema().names:
        if taken := next((record for record in block if name in record.values), None):
            raise DataError(f"{taken.where}: the input already has a column {name!r}. Rename it.")
    before = predictor.num_cut
    columns = [[row_files.cell(record, column) for record in block] for column in inputs]
    try:
        added = predictor.file_outputs(*columns)
    except DataError as error:
        raise DataError(f"in the rows from {block[0].where} on: {error}") from error
    rows = [{**row_files.named_values(record), **more} for record, more in zip(block, added, strict=True)]
    return rows, predictor.num_cut - before


def _schema(source: Path, layout: TableLayout) -> pa.Schema:
    """Return the columns of the input with their types: a Parquet file's own, or those that hold all rows."""
    if row_files.format_read(source, layout) == "parquet":
        return pq.read_schema(source)
    records = progress(row_files.file_rows(source, layout), description=f"{source.name}: types of the columns")
    return row_files.widened_schema(row_files.blocks_of(records))
