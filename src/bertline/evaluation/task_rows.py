"""Reading the rows of any kind of task from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyarrow.types as types

from bertline.foundation.errors import ArtifactError
from bertline.tasks.storage import SplitName, read_rows
from bertline.tasks.stored_rows import (
    CandidateRows,
    MultiLabelRows,
    NumberRows,
    PlainRows,
    QueryRows,
    QuestionRows,
    StoredRows,
    SummaryRows,
    TaggedRows,
    TextRows,
)

_ROWS: dict[str, type[StoredRows]] = {
    "classification": TextRows,
    "regression": NumberRows,
    "token_classification": TaggedRows,
    "question_answering": QuestionRows,
    "retrieval": QueryRows,
    "reranking": CandidateRows,
    "summarisation": SummaryRows,
    "fill_mask": PlainRows,
}


def rows_of(folder: Path, manifest: dict[str, Any], split: SplitName) -> StoredRows:
    """Read a split.

    Raises:
        ArtifactError: The file is missing, or the kind of task is unknown.
    """
    kind = manifest["task_kind"]
    if kind not in _ROWS:
        raise ArtifactError(f"{folder}: task_kind is {kind!r}, expected one of {', '.join(_ROWS)}.")
    rows_class = _ROWS[kind]
    if rows_class is TextRows and _several_labels(folder / f"{split}.parquet"):
        rows_class = MultiLabelRows
    return read_rows(folder, split, rows_class)


def _several_labels(path: Path) -> bool:
    return path.exists() and types.is_list(pq.read_schema(path).field("labels").type)
