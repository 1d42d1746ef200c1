"""What processes do with a store of MLflow, for tests in which several of them do it at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertline.tracking.config import TrackingConfig
from bertline.tracking.store import Store
from bertline.tracking.tracker import open_tracker


def send_some_and_die(config: TrackingConfig, metrics_file: Path, num_points: int) -> None:
    """Record a stage that follows a file, and end in the middle of a batch of points."""
    send = Store.log_points

    def some(store: Store, run_id: str, points: Sequence[Any]) -> None:
        send(store, run_id, points[:num_points])
        os._exit(9)

    Store.log_points = some  # type: ignore[method-assign]
    tracker = open_tracker(config, pipeline_key="pipeline-1", tags={}, params={})
    with tracker.stage("pretrain", key="key-1", params={}, tags={}, inputs={}) as run:
        run.follow(metrics_file)


def find_or_create_run(uri: str, experiment: str) -> None:
    """Open the store, and the run of a pipeline in it."""
    Store(uri, experiment).find_or_create_run({"bertline.pipeline_key": "one"}, "pipeline", {})
