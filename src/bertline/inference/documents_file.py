"""Documents for a retrieval model, read from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertline.foundation.errors import DataError
from bertline.foundation.progress import progress
from bertline.inference.parallel_rows import map_in_threads
from bertline.inference.predictor import InputColumn
from bertline.inference.row_files import RowsDigest, blocks_of, cell, read_rows
from bertline.kinds.retrieval.serving import RetrievalPredictor, SearchedDocuments
from bertline.tasks.search_files import one_line
from bertline.tasks.stored_rows import Documents
from bertline.tasks.table_files import Record, TableLayout


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


def searching(
    task: RetrievalPredictor, documents: DocumentsFile, layout: TableLayout, *, num_threads: int
) -> tuple[SearchedDocuments, int]:
    """Read and encode the documents; return a task that searches them, and the number of truncated documents.

    Raises:
        DataError: The file has no documents, or one cannot be read.
    """
    ids: list[str] = []
    records = progress(read_rows(documents.path, layout), description=f"{documents.path.name}: documents")

    def read() -> Iterator[list[str]]:
        for block in blocks_of(records, RowsDigest()):
            of_block = _documents_of(block.records, documents, first_number=len(ids))
            ids.extend(of_block.ids)
            yield of_block.texts_read()

    workers = [task.for_thread() for _ in range(num_threads)]
    encoders: list[Callable[[list[str]], np.ndarray]] = [worker.document_vectors for worker in workers]
    vectors = list(map_in_threads(encoders, read()))
    if not ids:
        raise DataError(f"{documents.path} has no rows. Give a file with at least one document.")
    found = SearchedDocuments(task, ids, np.concatenate(vectors), documents.top_k)
    return found, sum(worker.num_documents_cut for worker in workers)


def _documents_of(records: list[Record], documents: DocumentsFile, *, first_number: int) -> Documents:
    """Return the documents in the format of a task's collection, so that the model sees the same text as there."""
    ids, titles, texts = [], [], []
    for number, record in enumerate(records, start=first_number):
        identity = record.values.get(documents.id_column)
        has_title = record.values.get(documents.title_column) is not None
        title = cell(record, InputColumn(documents.title_column, "text")) if has_title else ""
        ids.append(str(number if identity is None else identity))
        titles.append(one_line(title))
        texts.append(one_line(cell(record, InputColumn(documents.text_column, "text"))))
    return Documents(ids, titles, texts)
