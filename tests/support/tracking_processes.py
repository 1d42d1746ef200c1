"""What processes do with a store of MLflow, for tests in which several of them do it at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from bertline.tracking.sending import send
from bertline.tracking.store import Store


def send_some_and_die(folder: Path, num_points: int) -> None:
    """Send a run folder, and end in the middle of a batch of points."""
    log_batch = MlflowClient.log_batch

    def some(client: MlflowClient, run_id: str, metrics: Sequence[Any] = (), **others: Any) -> None:
        log_batch(client, run_id, metrics=metrics[:num_points], **others)
        if metrics:
            os._exit(9)

    MlflowClient.log_batch = some
    send(folder)


def find_or_create_run(uri: str, experiment: str) -> None:
    """Open the store, and the run of a pipeline in it."""
    Store(uri, experiment).find_or_create_run({"bertline.pipeline_key": "one"}, "pipeline", start_s=1.0)
