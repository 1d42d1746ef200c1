"""The task artifact on disk: a manifest, one Parquet file per split and, for retrieval, one for the collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq

from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import read_manifest
from bertline.tasks.stored_rows import StoredRows

KIND = "task"
FORMAT_VERSION = 2
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
    return rows_class.from_table(pq.read_table(path))


def read_task_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a task folder: kind, labels, splits, counts, dropped rows by reason."""
    return read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION)
