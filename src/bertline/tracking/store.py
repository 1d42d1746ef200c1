"""Access to an MLflow store: safe opening, search of runs by tags, batched writes. Imports MLflow (about 2 s)."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag

# MLflow reads these variables when it is imported. Requests fail early because the outbox retries; values that are
# already in the environment take precedence.
os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # MLflow prints two lines per trial
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from bertline.foundation.files import locked
from bertline.tracking.config import database_file, masked
from bertline.tracking.outbox import RefusedError
from bertline.tracking.tracker import Status
from bertline.tracking.values import (
    MAX_TAG_CHARACTERS,
    METRICS_PER_BATCH,
    NOTE_TAG,
    PARAMS_PER_BATCH,
    batches,
    cut,
    metric_key,
)

_REFUSALS = (
    "BAD_REQUEST",
    "FEATURE_DISABLED",
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "PERMISSION_DENIED",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_DOES_NOT_EXIST",
    "UNAUTHENTICATED",
)
PARENT_TAG = "mlflow.parentRunId"
_EXPERIMENT_TAGS = {
    # MLflow shows the first line, and the rest on a click.
    NOTE_TAG: "A run for each pipeline, below it one for each stage, below a sweep one for each trial.\n\n"
    "A pipeline's run has the report among its artifacts, and a stage's run what it read and made.",
}
_MAX_DIGEST_CHARACTERS = 36  # width of MLflow's column; a DVC folder hash (32 + `.dir`) just fits
LOG = Path("runs/tracking.log")
"""Log file for connection messages of libraries."""


@contextmanager
def refusals() -> Iterator[None]:
    """Convert MLflow errors that retrying cannot fix to `RefusedError`; other errors pass through."""
    try:
        yield
    except MlflowException as error:
        if error.error_code in _REFUSALS:
            raise RefusedError(str(error)) from error
        raise


class Store:
    """A tracking store and one experiment in it."""

    def __init__(self, uri: str, experiment_name: str) -> None:
        for name in ("mlflow", "alembic"):  # both log on every start
            logging.getLogger(name).setLevel(logging.WARNING)
        _keep_off_the_terminal("urllib3")  # it logs every attempt; the outbox warns once per outage
        self.uri = uri
        self._experiment_name = experiment_name
        self._experiment_id: str | None = None
        with _only_one(uri):
            self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)

    def experiment_id(self) -> str:
        """Return the id of the experiment, which is created if it does not exist."""
        if self._experiment_id is None:
            experiment = self.client.get_experiment_by_name(self._experiment_name)
            if experiment is not None and experiment.lifecycle_stage == "deleted":
                raise RefusedError(
                    f"experiment {self._experiment_name!r} was deleted; restore it or set tracking.experiment_name"
                )
            self._experiment_id = experiment.experiment_id if experiment else self._create_experiment()
        return self._experiment_id

    def find_runs(self, tags: Mapping[str, str]) -> list[Run]:
        """Return the runs with all these tags, oldest first."""
        text = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
        runs: list[Run] = []
        token: str | None = None
        while True:
            page = self.client.search_runs(
                [self.experiment_id()], text, max_results=1000, order_by=["attributes.start_time ASC"], page_token=token
            )
            runs.extend(page)
            token = page.token
            if not token:
                return runs

    def find_or_create_run(self, identity: Mapping[str, str], name: str, extra_tags: Mapping[str, str]) -> str:
        """Return the oldest run with these identifying tags, or create one.

        Two processes that create a run at the same time both use the older one.
        """
        found = self.find_runs(identity)
        if found:
            return found[0].info.run_id
        created = self.create_run(name, {**identity, **extra_tags})
        oldest = self.find_runs(identity)[0].info.run_id
        if oldest != created:
            self.client.delete_run(created)
        return oldest

    def create_run(self, name: str, tags: Mapping[str, str], *, start_s: float | None = None) -> str:
        """Create a run in state RUNNING and return its id."""
        run = self.client.create_run(
            self.experiment_id(),
            start_time=int((start_s or time.time()) * 1000),
            tags={key: cut(value, MAX_TAG_CHARACTERS) for key, value in tags.items()},
            run_name=name,
        )
        return run.info.run_id

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set or replace tags."""
        for batch in batches([RunTag(key, cut(value, MAX_TAG_CHARACTERS)) for key, value in tags.items()], 100):
            self.client.log_batch(run_id, tags=batch)

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Add parameters that the run does not have yet; MLflow's parameters cannot be changed."""
        known = self.client.get_run(run_id).data.params
        new = [Param(key, value) for key, value in params.items() if key not in known]
        for batch in batches(new, PARAMS_PER_BATCH):
            self.client.log_batch(run_id, params=batch)

    def log_points(self, run_id: str, points: Sequence[tuple[str, float, float, int]]) -> None:
        """Write metrics, each (key, value, Unix time in seconds, step)."""
        metrics = [Metric(metric_key(key), value, int(time_s * 1000), step) for key, value, time_s, step in points]
        for batch in batches(metrics, METRICS_PER_BATCH):
            self.client.log_batch(run_id, metrics=batch)

    def known_steps(self, run_id: str, key: str) -> set[int]:
        """Return the steps at which the run already has a value of this metric."""
        return {metric.step for metric in self.client.get_metric_history(run_id, metric_key(key))}

    def set_status(self, run_id: str, status: Status) -> None:
        """Set the status of a run; any status but RUNNING also ends it."""
        if status == "RUNNING":
            self.client.update_run(run_id, status=status)
        else:
            self.client.set_terminated(run_id, status=status)

    def get_run(self, run_id: str) -> Any:
        """Return the current state of the run."""
        return self.client.get_run(run_id)

    def _create_experiment(self) -> str:
        try:
            return self.client.create_experiment(
                self._experiment_name, artifact_location=_artifact_location(self.uri), tags=_EXPERIMENT_TAGS
            )
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return self.client.get_experiment_by_name(self._experiment_name).experiment_id  # created by another process


def _keep_off_the_terminal(name: str) -> None:
    """Redirect a library's log to `runs/tracking.log`."""
    logger = logging.getLogger(name)
    if not any(isinstance(handler, _LogFile) for handler in logger.handlers):
        logger.addHandler(_LogFile())
        logger.propagate = False


class _LogFile(logging.Handler):
    """Handler that appends to `runs/tracking.log`, created at the first record; write errors are ignored."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {record.levelname} {record.name}: {masked(record.getMessage())}\n"
        with suppress(OSError):
            LOG.parent.mkdir(parents=True, exist_ok=True)
            with LOG.open("a", encoding="utf-8") as handle:
                handle.write(line)


def _artifact_location(uri: str) -> str | None:
    """Return the artifact location for a new experiment; None for servers, which have their own.

    With a plain database, MLflow would otherwise write to the current folder.
    """
    if uri.startswith(("http:", "https:", "databricks")):
        return None
    database = database_file(uri)
    folder = database.parent if database else Path("runs")
    return (folder.resolve() / "mlartifacts").as_posix()


@contextmanager
def _only_one(uri: str) -> Iterator[None]:
    """Hold a lock while a local database is opened: concurrent creation of MLflow's tables fails."""
    database = database_file(uri)
    if database is None:
        yield
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    with locked(database.with_name(f".{database.name}.lock")):
        yield


def dataset_inputs(inputs: Mapping[str, tuple[Path, str]]) -> list[DatasetInput]:
    """Convert names with paths and digests to MLflow entities. No data is read; digests identify the content."""
    return [
        DatasetInput(
            Dataset(
                name=name,
                digest=digest[:_MAX_DIGEST_CHARACTERS],
                source_type="local",
                source=json.dumps({"uri": path.as_posix()}),
            ),
            [InputTag("mlflow.data.context", "input")],
        )
        for name, (path, digest) in inputs.items()
    ]


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
