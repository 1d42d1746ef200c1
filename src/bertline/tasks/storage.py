"""The task artifact on disk: one Parquet file a split, and a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import read_manifest

KIND = "task"
FORMAT_VERSION = 1
SplitName = Literal["train", "dev", "test"]

_SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string()), ("text_pair", pa.string()), ("label", pa.int64())])


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one split, in their fixed order."""

    ids: list[str]
    texts: list[str]
    text_pairs: list[str] | None
    """None for a task of single passages."""
    labels: NDArray[np.int64]
    """Shape [N], numbers of the manifest's `labels`."""

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, num_rows: int | None) -> Rows:
        """The first rows: train rows are in a random order, so these are the smaller training set (None: all)."""
        pairs = self.text_pairs[:num_rows] if self.text_pairs is not None else None
        return Rows(self.ids[:num_rows], self.texts[:num_rows], pairs, self.labels[:num_rows])


def write_rows(folder: Path, split: SplitName, rows: Rows) -> None:
    """Write one split."""
    pairs = rows.text_pairs if rows.text_pairs is not None else [None] * len(rows)
    columns = {"id": rows.ids, "text": rows.texts, "text_pair": pairs, "label": rows.labels}
    pq.write_table(pa.table(columns, schema=_SCHEMA), folder / f"{split}.parquet", compression="zstd")


def read_rows(folder: Path, split: SplitName) -> Rows:
    """Read one split.

    Raises:
        ArtifactError: The file is missing.
    """
    path = folder / f"{split}.parquet"
    if not path.exists():
        raise ArtifactError(f"{path} is missing. Run the stage task_data again (dvc repro).")
    table = pq.read_table(path)
    pairs = table["text_pair"].to_pylist()
    has_pairs = bool(pairs) and pairs[0] is not None
    return Rows(
        table["id"].to_pylist(),
        table["text"].to_pylist(),
        pairs if has_pairs else None,
        table["label"].to_numpy(),
    )


def read_task_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a task folder: labels, counts, dropped rows by reason."""
    return read_manifest(folder, kind=KIND, format_version=FORMAT_VERSION)
