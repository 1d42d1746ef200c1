"""What processes do with a store of MLflow, for tests in which several of them do it at once."""

from __future__ import annotations

from bertline.tracking.store import Store


def find_or_create_run(uri: str, experiment: str) -> None:
    """Open the store, and the run of a pipeline in it."""
    Store(uri, experiment).find_or_create_run({"bertline.pipeline_key": "one"}, "pipeline", start_s=1.0)
