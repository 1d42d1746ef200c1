"""Run folders of a stage, as they are sent to MLflow, and what the server has of them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from mlflow import MlflowClient

from bertline.foundation.files import write_json
from bertline.tracking.config import TrackingConfig
from bertline.tracking.mlmodel import Serving
from bertline.tracking.sending import send_all
from bertline.tracking.store import Store
from bertline.tracking.tracked_runs import TrackedRun, TrackedRuns, write_tracked_runs


def tracking(uri: str, experiment: str, **changes: Any) -> TrackingConfig:
    settings: dict[str, Any] = {"log_text": False, "studies_url": "sqlite:///runs/studies.db"}
    settings |= {"system_metrics": False, "system_metrics_every_s": 0.2}
    return TrackingConfig(**{"enabled": True, "uri": uri, "experiment_name": experiment, **settings, **changes})


def record(config: TrackingConfig, *, pipeline: str = "pipeline-1", **changes: Any) -> TrackedRuns:
    """The record of a stage; `changes` are those of the stage's run."""
    stage = {"key": "key-1", "name": "pretrain", "params": {}, "tags": {}, **changes}
    whole = TrackedRun(key=pipeline, name="preset", params={}, tags={})
    return TrackedRuns(tracking=config, opened_s=time.time(), stage=TrackedRun(**stage), pipeline=whole)


def opened(folder: Path, content: TrackedRuns, state: str = "running") -> TrackedRuns:
    """Open a stage in a folder, which then has this state; returns its record."""
    write_tracked_runs(folder, content)
    set_state(folder, state)
    return content


def set_state(folder: Path, state: str) -> None:
    ended = {} if state == "running" else {"ended_s": time.time()}
    write_json(folder / "status.json", {"state": state, **ended})


def finish(folder: Path, content: TrackedRuns) -> None:
    """End a stage with what its record has now."""
    write_tracked_runs(folder, content)
    set_state(folder, "finished")


def send(folder: Path) -> bool:
    """Send a run folder; returns whether the server has everything now."""
    return not send_all([folder])


def event(number: int, state: str = "COMPLETE", **changes: Any) -> str:
    """A line of events.jsonl."""
    content = {"arm": "encoder", "kind": "trial", "number": number, "state": state, "params": {"lr": 0.1}}
    content |= {"metrics": {"dev/accuracy": 0.5}, "curve": [[0.5, 0.4], [1.0, 0.5]], "time_s": 3.0}
    return json.dumps(content | changes) + "\n"


def runs_of(config: TrackingConfig) -> dict[str, Any]:
    """All runs of the test's experiment by name; fails where two have one name."""
    client = MlflowClient(config.uri)
    experiment = client.get_experiment_by_name(config.experiment_name)
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    assert len({run.info.run_name for run in runs}) == len(runs)
    return {run.info.run_name: run for run in runs}


def steps_of(config: TrackingConfig, run: Any, key: str) -> list[int]:
    return sorted(point.step for point in MlflowClient(config.uri).get_metric_history(run.info.run_id, key))


def files_of(config: TrackingConfig, run: Any) -> set[str]:
    return {file.path for file in MlflowClient(config.uri).list_artifacts(run.info.run_id)}


def serving(dataset: tuple[str, str] | None = None) -> Serving:
    """How a folder would be loaded that nobody loads."""
    return Serving(
        loader_module="bertline.inference.pyfunc",
        inputs={"text": "text"},
        outputs=pa.schema([("vector", pa.list_(pa.float32()))]),
        params={},
        settings={"device": "cpu"},
        example={"text": "A text."},
        packages=("torch",),
        dataset=dataset,
    )


def find_or_create_run(uri: str, experiment: str) -> None:
    """Open the store, and the run of a pipeline in it."""
    Store(uri, experiment).find_or_create_run({"bertline.pipeline_key": "one"}, "pipeline", start_s=1.0)
