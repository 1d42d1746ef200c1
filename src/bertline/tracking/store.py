"""Access to an MLflow store: safe opening, search of runs, and runs that are sent only what they
lack.

Imports MLflow, which takes about 2 s.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow.compute as pc
import pyarrow.parquet as pq

# MLflow reads these variables when it is imported. Requests fail early because the sender tries
# again; values that are already in the environment take precedence.
os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # MLflow prints two lines per trial
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # it draws over the lines of a command
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from bertline.foundation.errors import MachineError
from bertline.foundation.files import locked
from bertline.foundation.mappings import leaves
from bertline.tracking.config import database_file
from bertline.tracking.tracked_runs import NOTE_TAG, ShownTable

RunStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
Point = tuple[str, float, float, int]
"""A value of a metric: key, value, Unix time in seconds, step."""

# MLflow's limits (mlflow.utils.validation): some stores reject longer values, others truncate them
# silently.
_MAX_KEY_CHARACTERS = 250
MAX_PARAM_CHARACTERS = 6000
_MAX_TAG_CHARACTERS = 8000
_MAX_DIGEST_CHARACTERS = 36  # a DVC folder hash (32 + `.dir`) just fits
PARAMS_PER_BATCH = 100
METRICS_PER_BATCH = 1000
_MOST_RUNS = 50_000  # of one answer
_REFUSALS = (
    "BAD_REQUEST", "FEATURE_DISABLED", "INVALID_PARAMETER_VALUE", "INVALID_STATE", "PERMISSION_DENIED",
    "RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST", "UNAUTHENTICATED",
)  # fmt: skip
_EXPERIMENT_TAGS = {
    # MLflow shows the first line, and the rest on a click.
    NOTE_TAG: "A run for each pipeline, below it one for each stage, below a sweep one for each trial.\n\n"
    "A pipeline's run has the report among its artifacts, and a stage's run what it read and made."
}
_DIGEST_TAG = "bertline.sha256."
"""With the name of an artifact: the digest of its content."""


def refused(error: Exception) -> bool:
    """Return whether the server rejected a request that it would reject again."""
    return isinstance(error, MlflowException) and error.error_code in _REFUSALS


class Store:
    """A tracking store and one experiment in it."""

    def __init__(self, uri: str, experiment_name: str) -> None:
        for name in ("mlflow", "alembic"):  # both log on every start
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger("urllib3").setLevel(logging.ERROR)  # it warns of every attempt, the sender once per outage
        # It prints the traceback of an error that it raises, such as that of a full disk.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
        self.uri = uri
        self._experiment_name = experiment_name
        if (database := database_file(uri)) is not None:
            database.parent.mkdir(parents=True, exist_ok=True)
        # Concurrent creation of MLflow's tables fails.
        with nullcontext() if database is None else locked(database.with_name(f".{database.name}.lock")):
            self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)

    @cached_property
    def experiment_id(self) -> str:
        """Id of the experiment, which is created if it does not exist.

        Raises:
            MachineError: The experiment was deleted.
        """
        name = self._experiment_name
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            location = _artifact_location(self.uri)
            try:
                return str(self.client.create_experiment(name, artifact_location=location, tags=_EXPERIMENT_TAGS))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                experiment = self.client.get_experiment_by_name(name)  # created by another process
        if experiment.lifecycle_stage == "deleted":
            raise MachineError(f"experiment {name!r} was deleted; restore it or set tracking.experiment_name")
        return str(experiment.experiment_id)

    def find_runs(self, tags: Mapping[str, str]) -> list[Run]:
        """Return the runs with all these tags, oldest first."""
        text = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
        order = ["attributes.start_time ASC"]
        return list(self.client.search_runs([self.experiment_id], text, max_results=_MOST_RUNS, order_by=order))

    def find_or_create_run(self, identity: Mapping[str, str], name: str, *, start_s: float) -> StoredRun:
        """Return the oldest run with these identifying tags, or create one.

        Two processes that create a run at the same time both use the older one.
        """
        runs = self.find_runs(identity)
        if not runs:
            created = self.create_run(name, identity, start_s=start_s)
            runs = self.find_runs(identity)
            if runs[0].info.run_id != created.id:
                self.client.delete_run(created.id)
        return StoredRun(self.client, runs[0])

    def create_run(self, name: str, tags: Mapping[str, str], *, start_s: float) -> StoredRun:
        """Create a run in state RUNNING."""
        plain = {key: truncated(value, _MAX_TAG_CHARACTERS) for key, value in tags.items()}
        run = self.client.create_run(self.experiment_id, start_time=int(start_s * 1000), tags=plain, run_name=name)
        return StoredRun(self.client, run)


class StoredRun:
    """A run and what it has: each method sends only what it lacks. After an error, it must be found
    again."""

    def __init__(self, client: MlflowClient, run: Run) -> None:
        self._client = client
        self.id: str = run.info.run_id
        self.status: str = run.info.status
        self.tags: dict[str, str] = dict(run.data.tags)
        self._params = set(run.data.params)
        self._metrics: dict[str, float] = dict(run.data.metrics)
        self._steps: dict[str, set[int]] = {}
        self._inputs = {(one.dataset.name, one.dataset.digest) for one in run.inputs.dataset_inputs}

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set or replace tags."""
        plain = {key: truncated(value, _MAX_TAG_CHARACTERS) for key, value in tags.items()}
        new = {key: value for key, value in plain.items() if self.tags.get(key) != value}
        self._log("tags", [RunTag(*item) for item in new.items()], PARAMS_PER_BATCH)
        self.tags |= new

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Add parameters, nested ones flattened; MLflow's parameters cannot be changed."""
        new = {key: value for key, value in flatten(params).items() if key not in self._params}
        self._log("params", [Param(*item) for item in new.items()], PARAMS_PER_BATCH)
        self._params |= set(new)

    def log_inputs(self, inputs: Mapping[str, tuple[str, str]]) -> None:
        """Add inputs, path and digest by name."""
        datasets = dataset_inputs(inputs)
        if not {(one.dataset.name, one.dataset.digest) for one in datasets} <= self._inputs:
            self._client.log_inputs(self.id, datasets)
            self._inputs |= {(one.dataset.name, one.dataset.digest) for one in datasets}

    def log_points(self, points: Iterable[Point]) -> None:
        """Add values of metrics; a (key, step) that the run has is left as it is."""
        new: list[Metric] = []
        for name, value, time_s, step in points:
            key = metric_key(name)
            if step not in self._steps_of(key):
                self._steps_of(key).add(step)
                new.append(Metric(key, value, int(time_s * 1000), step))
        self._log("metrics", new, METRICS_PER_BATCH)

    def log_figures(self, figures: Mapping[str, float], time_s: float) -> None:
        """Add or replace single values. MLflow shows the value of the last step, so a changed one
        gets a new step."""
        points = []
        for name, value in figures.items():
            key = metric_key(name)
            # A store gives back neither NaN nor an infinity as it was.
            if key not in self._metrics or (math.isfinite(value) and self._metrics[key] != value):
                points.append((name, value, time_s, max(self._steps_of(key), default=-1) + 1))
        self.log_points(points)
        self._metrics |= {metric_key(key): value for key, value in figures.items()}

    def attach(self, name: str, sha256: str, upload: Callable[[MlflowClient, str], None]) -> None:
        """Attach an artifact by `upload`, which takes the client and the id of the run, unless the
        run has it."""
        tag = _DIGEST_TAG + re.sub(r"[^\w. -]", "_", name)  # `sweep@TASK.json` is no key of a tag
        if self.tags.get(tag) != sha256:
            upload(self._client, self.id)
            self.set_tags({tag: sha256})

    def set_status(self, status: RunStatus, *, ended_s: float | None = None) -> None:
        """Set the status; any status but RUNNING also ends the run, at `ended_s` (by default now)."""
        if status == self.status:
            return
        if status == "RUNNING":
            self._client.update_run(self.id, status=status)
        else:
            end = None if ended_s is None else int(ended_s * 1000)
            self._client.set_terminated(self.id, status=status, end_time=end)
        self.status = status

    def _log(self, kind: Literal["metrics", "params", "tags"], items: Sequence[Any], batch_size: int) -> None:
        for start in range(0, len(items), batch_size):
            self._client.log_batch(self.id, **{kind: items[start : start + batch_size]})

    def _steps_of(self, key: str) -> set[int]:
        if key not in self._steps:
            history = self._client.get_metric_history(self.id, key) if key in self._metrics else []
            self._steps[key] = {metric.step for metric in history}
        return self._steps[key]


def upload_path(path: Path, client: MlflowClient, run_id: str) -> None:
    """Attach a file or folder to a run."""
    if path.is_dir():
        client.log_artifacts(run_id, str(path), path.name)
    else:
        client.log_artifact(run_id, str(path))


def upload_config(config: Mapping[str, Any], client: MlflowClient, run_id: str) -> None:
    """Attach a configuration to a run as `config.yaml`."""
    client.log_dict(run_id, dict(config), "config.yaml")


def upload_table(path: Path, table: ShownTable, client: MlflowClient, run_id: str) -> None:
    """Attach the first rows of a Parquet file to a run as the table `NAME.json`."""
    file = f"{table.name}.json"
    # MLflow appends to a table that exists. A run is one result, so the rows that it has are those
    # of the file.
    if file in {artifact.path for artifact in client.list_artifacts(run_id)}:
        return
    rows = pq.read_table(path)
    if table.wrong_only:
        rows = rows.filter(pc.less(rows["correct"].cast("float64"), 1.0))
    if len(rows):
        client.log_table(run_id, rows.slice(0, table.num_rows).to_pandas(), file)


def dataset_inputs(inputs: Mapping[str, tuple[str, str]]) -> list[DatasetInput]:
    """Convert names with paths and digests to MLflow entities. No data is read; digests identify
    the content."""
    tags = [InputTag("mlflow.data.context", "input")]
    return [
        DatasetInput(Dataset(name, digest[:_MAX_DIGEST_CHARACTERS], "local", json.dumps({"uri": path})), tags)
        for name, (path, digest) in inputs.items()
    ]


def flatten(mapping: Mapping[str, Any]) -> dict[str, str]:
    """Flatten a nested configuration to dotted keys and string values, the format of MLflow's
    parameters.

    Lists of plain values are kept whole; lists of mappings are indexed.

    >>> flatten({"optimizer": {"lr": 0.001, "betas": [0.9, 0.999]}, "phases": [{"steps": 10}]})
    {'optimizer.lr': '0.001', 'optimizer.betas': '[0.9, 0.999]', 'phases.0.steps': '10'}
    """
    texts = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for key, value in leaves(mapping)
    }
    return {key[:_MAX_KEY_CHARACTERS]: truncated(text, MAX_PARAM_CHARACTERS) for key, text in texts.items()}


def truncated(value: str, limit: int) -> str:
    """Truncate a value to a limit, with a note on its original length.

    >>> truncated("a" * 100, 40)
    'aaaaaaaaaaaaaaa… (cut, 100 characters)'
    """
    if len(value) <= limit:
        return value
    note = f"… (cut, {len(value)} characters)"
    # MLflow counts characters, databases may count bytes: leave two bytes for the note's multi-byte
    # character.
    return value[: limit - len(note) - 2] + note


def metric_key(name: str) -> str:
    """Replace @ in the name of a metric, which MLflow does not allow in keys.

    >>> metric_key("test/ndcg@10_mean")
    'test/ndcg_at_10_mean'
    """
    return name.replace("@", "_at_")


def _artifact_location(uri: str) -> str | None:
    """Return the artifact location for a new experiment; None for servers, which have their own.

    With a plain database, MLflow would otherwise write to the current folder.
    """
    if uri.startswith(("http:", "https:", "databricks")):
        return None
    database = database_file(uri)
    folder = database.parent if database else Path("runs")
    return (folder.resolve() / "mlartifacts").as_posix()
