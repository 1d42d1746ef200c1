"""Tables that MLflow shows among the artifacts of a run."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from mlflow import MlflowClient


def log_rows(client: MlflowClient, run_id: str, path: Path, name: str, *, num_rows: int, wrong_only: bool) -> None:
    """Log rows of a Parquet file as the table `NAME.json`, unless the run has that table; see `TrackedRun.log_table`.

    MLflow appends to a table that exists. A run is one result, so the rows that it has are those of the file.
    """
    file = f"{name}.json"
    if file in {artifact.path for artifact in client.list_artifacts(run_id)}:
        return
    rows = pq.read_table(path)
    if wrong_only:
        rows = rows.filter(pc.less(rows["correct"].cast("float64"), 1.0))
    if len(rows):
        client.log_table(run_id, rows.slice(0, num_rows).to_pandas(), file)
