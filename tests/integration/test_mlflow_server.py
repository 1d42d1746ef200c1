"""MLflow on PostgreSQL and S3, behind its host check: it starts late, restarts, hangs and is away, and nothing is lost.

Every value of a training's files is compared with what the server has.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mlflow import MlflowClient

import planted
import servers
import smoke
from bertline.foundation.metrics_log import read_metrics

GUARD = Path(servers.__file__).parent / "socket_guard"


class Servers(NamedTuple):
    """MLflow, and what it keeps its records in."""

    mlflow: servers.MLflowServer
    bucket: Any
    database: str
    """Address of MLflow's database, with the password."""


@pytest.fixture(scope="module")
def tracked() -> Iterator[Servers]:
    """All servers but MLflow, which a test starts when it wants to; it stays for the next one."""
    with servers.PostgreSQL() as postgresql, servers.S3() as s3:
        database = postgresql.database("mlflow")
        without_password = database.replace(f":{postgresql.password_in_address}@", "@")
        environment = {**s3.environment(), **postgresql.environment()}
        mlflow = servers.MLflowServer(without_password, "s3://models/bertline", environment=environment)
        yield Servers(mlflow, s3.bucket("models"), database)
        mlflow.stop()


class Training:
    """`python pipelines/pretrain.py` in a process of its own, which notes what it connects to."""

    def __init__(self, pipeline: Path, uri: str, tmp_path: Path, *, num_steps: int) -> None:
        self.pipeline = pipeline
        self.connections = tmp_path / "connections.txt"
        self._log = tmp_path / "output.txt"
        self._before = set((pipeline / "runs/pretrain").glob("[!.]*"))
        phases = f"pretrain.phases=[{{steps: {num_steps}, max_length: 32, global_batch_size: 16}}]"
        rare = [f"pretrain.mask_predictions.every_steps={num_steps // 4}"]
        rare += [f"pretrain.{key}={num_steps // 4}" for key in ("validate_every_steps", "checkpoint_every_steps")]
        load = ["tracking.system_metrics=true", "tracking.system_metrics_every_s=0.5"]
        words = ["pipelines/pretrain.py", phases, *rare, *load, f"tracking.uri={uri}", "tracking.experiment_name=chaos"]
        environment = smoke.environment(pipeline, CONNECTIONS=str(self.connections), **planted.ENVIRONMENT)
        environment["PYTHONPATH"] = os.pathsep.join([str(GUARD), environment["PYTHONPATH"]])
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, *words], cwd=pipeline, env=environment, stdout=log, stderr=log
            )

    @property
    def folder(self) -> Path:
        """Its run folder."""
        (found,) = self._new_folders()
        return found

    def wait_for_rows(self, more: int) -> None:
        """Wait until so many more rows of its curve are there; fail if it ends before."""
        begun = self._num_rows()
        servers.wait_until(lambda: self._num_rows() >= begun + more or self._process.poll() is not None)
        assert self._process.poll() is None, f"the training ended before all that it was to go through\n{self.said()}"

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop it meanwhile, so that it does not end before all that it is to go through."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Wait for its end, which must be a good one."""
        assert self._process.wait(600) == 0, self.said()

    def said(self) -> str:
        """What it printed."""
        return self._log.read_text()

    def _new_folders(self) -> set[Path]:
        return set((self.pipeline / "runs/pretrain").glob("[!.]*")) - self._before

    def _num_rows(self) -> int:
        paths = [folder / "metrics.jsonl" for folder in self._new_folders()]
        return sum(len(path.read_bytes().splitlines()) for path in paths if path.exists())


def written(folder: Path) -> Counter[tuple[str, int, float]]:
    """(key, step, value) of every value in the files that MLflow is fed from."""
    files = [folder / "metrics.jsonl", *folder.glob("system*.jsonl")]
    rows = [row for path in files for row in read_metrics(path)]
    return Counter((key, row.step, value) for row in rows for key, value in row.metrics.items())


def recorded(client: MlflowClient, run_id: str) -> Counter[tuple[str, int, float]]:
    """(key, step, value) of every value that MLflow has; the steps of each curve must be in the order of time."""
    found: Counter[tuple[str, int, float]] = Counter()
    for key in client.get_run(run_id).data.metrics:
        history = client.get_metric_history(run_id, key)
        in_time = sorted(history, key=lambda point: (point.timestamp, point.step))
        assert [point.step for point in in_time] == sorted(point.step for point in history), key
        found.update((key, point.step, point.value) for point in history)
    return found


def assert_complete(servers_: Servers, training: Training, tmp_path: Path) -> None:
    """The run has every value once, its figures once, its files as they are on disk, and it is finished."""
    client, folder = MlflowClient(servers_.mlflow.uri), training.folder
    experiment = client.get_experiment_by_name("chaos")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], f"tags.`bertline.fingerprint` = '{folder.name}'")
    (run,) = [run for run in runs if run.data.tags.get("bertline.stage") == "pretrain"]
    assert run.info.status == "FINISHED"
    expected, found = written(folder), recorded(client, run.info.run_id)
    assert len([key for key in expected if key[0].startswith("system/")]) > 10
    lost = expected - found
    assert not lost
    of_curves = {key for key, _, _ in expected}
    doubled_or_never_written = {key: count for key, count in (found - expected).items() if key[0] in of_curves}
    assert not doubled_or_never_written
    # What is beyond the curves are the headline figures, one value each.
    assert set((found - expected).values()) == {1}
    paths = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"metrics.json", "manifest.json", "mask_predictions.jsonl"} <= paths
    for name in ("metrics.json", "mask_predictions.jsonl"):
        back = client.download_artifacts(run.info.run_id, name, str(tmp_path))
        assert Path(back).read_bytes() == (folder / name).read_bytes()
    assert any(run.info.run_id in item.key for item in servers_.bucket.objects.all())


def assert_no_other_connection(training: Training, server: servers.MLflowServer) -> None:
    """Of all that it might have called, it has called the tracking server alone."""
    assert set(training.connections.read_text().split()) == {f"127.0.0.1:{server.port}"}


def test_a_server_that_starts_late_restarts_and_hangs_has_every_value_once(tracked, pipeline, tmp_path) -> None:
    mlflow = tracked.mlflow
    training = Training(pipeline, mlflow.uri, tmp_path, num_steps=12_000)
    for _ in ("late", "restarted"):
        mlflow.stop()
        training.wait_for_rows(5)
        with training.paused():
            mlflow.start()
        training.wait_for_rows(5)
    mlflow.send_signal(signal.SIGSTOP)
    training.wait_for_rows(10)
    mlflow.send_signal(signal.SIGCONT)
    training.end()
    assert "takes no records now" in training.said()
    assert_complete(tracked, training, tmp_path)
    assert_no_other_connection(training, mlflow)


def test_what_is_unsent_at_the_end_is_sent_by_one_command(tracked, pipeline, tmp_path, run) -> None:
    mlflow = tracked.mlflow
    if not mlflow.is_up():
        mlflow.start()
    training = Training(pipeline, mlflow.uri, tmp_path, num_steps=2000)
    training.wait_for_rows(3)
    mlflow.stop()
    training.end()
    assert "did not take all records" in training.said() and "bertline send" in training.said()
    failed = run(pipeline, sys.executable, "-m", "bertline", "send", **planted.ENVIRONMENT)
    assert failed.returncode == 1 and str(training.folder.relative_to(pipeline)) in failed.stderr
    mlflow.start()
    for _ in range(2):
        done = smoke.succeeded(run(pipeline, sys.executable, "-m", "bertline", "send", **planted.ENVIRONMENT))
        assert_complete(tracked, training, tmp_path)
        assert planted.SECRET not in done.stdout + done.stderr
    assert_no_other_connection(training, mlflow)
    # All of it ran with secrets in its environment.
    assert planted.SECRET not in training.said() + failed.stdout + failed.stderr
    assert planted.places_of_secret(pipeline) == []
    assert planted.rows_with_secret(tracked.database) == []
    assert planted.objects_with_secret(tracked.bucket) == []
