"""What bertline relies on in MLflow. A failure here says what in `bertline.tracking` an upgrade touches."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.models.utils import _enforce_params_schema, _enforce_schema
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema
from mlflow.utils.validation import MAX_METRICS_PER_BATCH, MAX_PARAMS_TAGS_PER_BATCH

from bertline.foundation import system_load
from bertline.tracking import mlmodel
from bertline.tracking.store import METRICS_PER_BATCH, PARAMS_PER_BATCH


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> MlflowClient:
    folder = tmp_path_factory.mktemp("mlflow")
    return MlflowClient(f"sqlite:///{folder}/mlflow.db")


@pytest.fixture
def run_id(client: MlflowClient, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    experiment = client.create_experiment(request.node.name, artifact_location=str(tmp_path))
    return client.create_run(experiment).info.run_id


def test_the_file_store_is_an_error_so_sqlite_is_the_default(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="filesystem tracking backend"):
        MlflowClient((tmp_path / "mlruns").as_uri()).create_experiment("x")


def test_the_same_metric_and_step_logged_twice_shows_twice_so_feeds_ask_first(client, run_id) -> None:
    for milliseconds in (1000, 2000):
        client.log_batch(run_id, metrics=[Metric("loss", 1.0, milliseconds, 5)])
    assert len(client.get_metric_history(run_id, "loss")) == 2


def test_batches_hold_1000_metrics_and_100_params_as_values_py_has_it(client: MlflowClient, run_id: str) -> None:
    # A server enforces these; a bare database does not.
    assert (MAX_METRICS_PER_BATCH, MAX_PARAMS_TAGS_PER_BATCH) == (METRICS_PER_BATCH, PARAMS_PER_BATCH)
    client.log_batch(run_id, metrics=[Metric("a", 1.0, 1, step) for step in range(METRICS_PER_BATCH)])
    client.log_batch(run_id, params=[Param(f"p{number}", "1") for number in range(PARAMS_PER_BATCH)])


def test_a_dvc_folder_hash_is_a_dataset_digest_and_a_longer_one_is_refused(client: MlflowClient, run_id: str) -> None:
    fits = Dataset(name="corpus", digest="0" * 32 + ".dir", source_type="local", source="{}")
    client.log_inputs(run_id, [DatasetInput(fits)])
    assert client.get_run(run_id).inputs.dataset_inputs[0].dataset.digest == fits.digest
    with pytest.raises(MlflowException):
        client.log_inputs(run_id, [DatasetInput(Dataset("corpus", "0" * 37, "local", "{}"))])


def test_the_load_of_a_machine_has_the_names_that_mlflow_gives_it() -> None:
    monitors = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
    for monitor in monitors:
        monitor.collect_metrics()
    names = {name for monitor in monitors for name in monitor.metrics}
    assert {name for sensor in system_load._sensors() for name in sensor()} >= names
    assert SystemMetricsMonitor("run", node_id="gpu1")._metrics_prefix == "system/"


def test_unknown_columns_and_parameters_are_dropped_with_a_warning_that_mlmodel_py_raises(caplog, monkeypatch) -> None:
    logger = logging.getLogger(mlmodel.mlflow.models.utils.__name__)
    monkeypatch.setattr(logger, "filters", [])
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    monkeypatch.setattr(logger, "propagate", False)
    schema = Schema([ColSpec("string", "text")])
    _enforce_schema(pd.DataFrame({"text": ["a"], "other": ["b"]}), schema)
    _enforce_params_schema({"top_k": 1}, None)
    _enforce_params_schema({"topk": 1}, ParamSchema([ParamSpec("top_k", "long", 10)]))
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3 and all(message.startswith(mlmodel._DROPPED) for message in messages)
