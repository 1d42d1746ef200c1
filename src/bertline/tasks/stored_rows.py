"""Stored rows: their columns, the files of the task artifact, and what a source is built into."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import read_manifest

# Arrow type of a stored column by the type of its field.
_TYPES = {
    list[str]: pa.string(),
    list[str] | None: pa.string(),
    list[list[str]]: pa.list_(pa.string()),
    list[list[int]]: pa.list_(pa.int64()),
    list[list[float]]: pa.list_(pa.float64()),
    NDArray[np.int64]: pa.int64(),
    NDArray[np.float64]: pa.float64(),
}
_DTYPES = {NDArray[np.int64]: np.int64, NDArray[np.float64]: np.float64}


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Columns of equal length, in a fixed order. Train rows are in random order, so the first n are a random sample."""

    ids: list[str]
    """Ids, unique in the split, that name the origin of a row (`train.tsv:17`). They have no structure to read."""
    clusters: list[str] | None = field(default=None, kw_only=True)
    """Cluster of each row, such as its author; rows of one are not independent. None: each row is independent."""

    source_column: ClassVar[str] = "ids"
    columns_read: ClassVar[tuple[str, ...]]
    """Columns of texts, or of lists of them, that the model reads."""

    @classmethod
    def schema(cls) -> pa.Schema:
        """Return the schema of the stored table; column names are field names."""
        columns, types = dataclasses.fields(cls), get_type_hints(cls)
        return pa.schema({column.name: _TYPES[types[column.name]] for column in columns if not column.kw_only})

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, indices: Sequence[int] | NDArray[np.integer]) -> Self:
        """Return the rows at these indices, in this order."""
        places = np.asarray(indices, dtype=np.int64)
        columns = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        taken = {
            name: [values[i] for i in places.tolist()] if isinstance(values, list) else values[places]
            for name, values in columns.items()
            if values is not None
        }
        return dataclasses.replace(self, **taken)

    def first(self, num_rows: int | None) -> Self:
        """Return the first rows; None returns all."""
        return self if num_rows is None else self.take(range(min(num_rows, len(self))))

    def joined(self, other: Self) -> Self:
        """Return these rows and then the others."""
        both: dict[str, Any] = {}
        for column in dataclasses.fields(self):
            ours, theirs = getattr(self, column.name), getattr(other, column.name)
            if ours is not None:
                both[column.name] = ours + theirs if isinstance(ours, list) else np.concatenate([ours, theirs])
        return dataclasses.replace(self, **both)

    def to_table(self) -> pa.Table:
        """Return the stored columns as a table, with the clusters if there are any."""
        schema = self.schema()
        if self.clusters is not None:
            schema = schema.append(pa.field("clusters", pa.string()))
        columns = {name: getattr(self, name) for name in schema.names}
        return pa.table(
            {name: [None] * len(self) if values is None else list(values) for name, values in columns.items()},
            schema=schema,
        )

    @classmethod
    def from_table(cls, table: pa.Table) -> Self:
        """Return the rows of a table written by `to_table`."""
        types = get_type_hints(cls)
        columns: dict[str, Any] = {}
        for name in table.schema.names:
            values, dtype = table[name].to_pylist(), _DTYPES.get(types[name])
            if dtype is None:  # a column without values was None
                columns[name] = None if values and values[0] is None else values
            else:
                columns[name] = np.array(values, dtype=dtype)
        return cls(**columns)

    @classmethod
    def of(cls, rows: Iterable[Sequence[Any]]) -> Self:
        """Return rows that are given one by one, each with its values in the order of the columns."""
        columns = zip(*rows, strict=True)
        return cls(*(list(next(columns, ())) for _ in cls.schema()))

    def texts_read(self) -> list[str]:
        """Return one text per row with everything the model reads, for measuring overlap with the corpus."""
        columns = [values for name in self.columns_read if (values := getattr(self, name)) is not None]
        rows = zip(*([[cell] if isinstance(cell, str) else cell for cell in column] for column in columns), strict=True)
        return [" ".join(chain.from_iterable(cells)).strip() for cells in rows]

    def sources(self) -> list[str]:
        """Return the source of each row: its cluster or else its `source_column`. Rows of one are not independent."""
        return list(getattr(self, self.source_column) if self.clusters is None else self.clusters)


@dataclass(frozen=True, slots=True)
class PairedRows(StoredRows):
    """Passages or pairs of passages. The last column of a subclass is its target, an array."""

    texts: list[str]
    text_pairs: list[str] | None
    """Second texts; None for a task of single passages."""

    columns_read = ("texts", "text_pairs")


@dataclass(frozen=True, slots=True)
class TextRows(PairedRows):
    """Passages or pairs with one label each (`classification`)."""

    labels: NDArray[np.int64]
    """[N], indices into the manifest's `labels`."""


@dataclass(frozen=True, slots=True)
class MultiLabelRows(PairedRows):
    """Passages or pairs with any number of labels each (`classification` with `multi_label`)."""

    labels: NDArray[np.int64]
    """[N, L], 0 or 1."""

    @classmethod
    def schema(cls) -> pa.Schema:
        """Return the schema of the stored table, in which a row has a list of L."""
        return PairedRows.schema().append(pa.field("labels", pa.list_(pa.int64())))


@dataclass(frozen=True, slots=True)
class NumberRows(PairedRows):
    """Passages or pairs with one number each (`regression`)."""

    numbers: NDArray[np.float64]
    """[N], on the task's scale."""


@dataclass(frozen=True, slots=True)
class TaggedRows(StoredRows):
    """Sentences with a tag for each word (`token_classification`)."""

    documents: list[str]
    """Document of each sentence. The sentences of a document are never distributed over train, dev and test."""
    words: list[list[str]]
    tags: list[list[str]]
    """IOB2 tags, one per word: `O`, `B-TYPE`, `I-TYPE`."""

    source_column, columns_read = "documents", ("words",)


@dataclass(frozen=True, slots=True)
class QuestionRows(StoredRows):
    """Questions on contexts (`question_answering`)."""

    titles: list[str]
    """Article of each question. The questions of an article are never distributed over train, dev and test."""
    questions: list[str]
    contexts: list[str]
    answers: list[list[str]]
    """Gold answers of each question; empty if the context does not answer it (SQuAD 2.0)."""
    starts: list[list[int]]
    """Start of each answer in the context, in characters."""

    source_column, columns_read = "titles", ("contexts", "questions")


@dataclass(frozen=True, slots=True)
class Documents(StoredRows):
    """The collection to search; stored once per task, as `collection`."""

    titles: list[str]
    """Title of each document; empty if it has none."""
    texts: list[str]

    def texts_read(self) -> list[str]:
        """Return title and text of each document, or only the text if it begins with the title, as in Cranfield."""
        return [
            text if text.startswith(title) else f"{title} {text}".strip()
            for title, text in zip(self.titles, self.texts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class QueryRows(StoredRows):
    """Queries with their judged documents (`retrieval`). All splits share one collection."""

    queries: list[str]
    document_ids: list[list[str]]
    """Ids of the judged documents of each query."""
    relevances: list[list[int]]
    """Relevance of each judged document; 0 or below means judged not relevant."""

    columns_read = ("queries",)


@dataclass(frozen=True, slots=True)
class CandidateRows(StoredRows):
    """Queries with the candidates to re-rank (`reranking`). A row is a query with all its candidates."""

    queries: list[str]
    candidate_ids: list[list[str]]
    candidates: list[list[str]]
    """Texts of the candidates, in the order of the first stage or, for a table of answers, of the source."""
    relevances: list[list[int]]
    """Relevance of each candidate; 0 or below means not relevant."""
    first_scores: list[list[float]]
    """Scores of the first stage (BM25); higher is better."""
    all_relevances: list[list[int]]
    """Relevances of all judged documents of the query, including those that the first stage missed."""

    columns_read = ("queries", "candidates")


@dataclass(frozen=True, slots=True)
class SummaryRows(StoredRows):
    """Documents as lists of sentences, each with a summary (`summarisation`)."""

    sentences: list[list[str]]
    summaries: list[str]
    chosen: list[list[int]]
    """1 for sentences in the greedy selection with the best ROUGE, which is the training target; else 0."""

    columns_read = ("sentences",)


TASK_KIND = "task"
TASK_FORMAT = 2
COLLECTION = "collection"
"""Name of the file with the documents to search."""
SplitName = str
"""`train`, `dev`, `test`, or `test_NAME` for one of the task's extra tests."""

Rows = TypeVar("Rows", bound=StoredRows)


def write_rows(folder: Path, split: SplitName, rows: StoredRows) -> None:
    """Write one split."""
    pq.write_table(rows.to_table(), folder / f"{split}.parquet", compression="zstd")


def read_rows(folder: Path, split: SplitName, rows_class: type[Rows]) -> Rows:
    """Read one split.

    Raises:
        ArtifactError: The file is missing.
    """
    path = folder / f"{split}.parquet"
    if not path.exists():
        raise ArtifactError(f"{path} is missing. Run the stage task_data again (dvc repro).")
    with pq.ParquetFile(path) as file:  # `read_table` holds on to several times the memory
        table = file.read(use_threads=False)
    rows = rows_class.from_table(table)
    del table
    pa.default_memory_pool().release_unused()
    return rows


def read_task_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a task folder: kind, labels, splits, counts, dropped rows by reason."""
    return read_manifest(folder, kind=TASK_KIND, format_version=TASK_FORMAT)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltTask(Generic[Rows]):
    """A task ready to be written."""

    splits: dict[SplitName, Rows]
    """Rows of `train`, `dev`, `test` and, for each extra test, `test_NAME`. Train rows are in random order."""
    labels: tuple[str, ...] = ()
    """Label names; empty for a task without labels."""
    dropped: Counter[str]
    """Number of dropped rows and of repairs, by reason."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the packages that the rows were read with."""
    collection: Documents | None = None
    """Documents to search; retrieval only."""
    targets: dict[SplitName, set[tuple[str, ...]]] = field(default_factory=dict)
    """Different targets of the rows (or words) of each split: their labels. A split with one cannot be scored."""
    more: dict[str, Any] = field(default_factory=dict)
    """Additional keys of the manifest."""
