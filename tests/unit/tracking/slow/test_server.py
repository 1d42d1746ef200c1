"""The same curve through a real server that starts late and goes away in between."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from bertline.foundation.metrics_log import MetricsLog
from bertline.tracking.config import TrackingConfig
from bertline.tracking.tracker import open_tracker
from ports import free_port
from serving_inputs import serving


class Server:
    """`mlflow server` on loopback."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{self._folder}/s.db"]
        command += ["--artifacts-destination", str(self._folder / "files"), "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--workers", "1"]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{self.uri}/health", timeout=1)
                return
            except OSError:
                time.sleep(0.2)
        self.stop()
        pytest.fail("mlflow server did not start in 90 s")

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(600)
            self._process = None


def test_a_run_begun_offline_and_continued_on_a_server_is_one_clean_curve(
    tmp_path: Path, metrics_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(tmp_path)
    config = TrackingConfig(
        enabled=True,
        uri=server.uri,
        experiment_name="server",
        log_text=False,
        studies_url="sqlite:///runs/studies.db",
        system_metrics=False,
        system_metrics_every_s=1.0,
    )
    log = MetricsLog(metrics_file)
    report = tmp_path / "report.html"
    report.write_text("hello")
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "config.json").write_text("{}")

    with open_tracker(config, pipeline_key="pipeline", tags={}, params={}) as tracker:
        with tracker.stage("pretrain", key="k", params={"lr": 0.1}, tags={}, inputs={}) as run:
            run.follow(metrics_file)
            for step in range(20):
                log.log(step, {"train/loss": step})
        assert run.run_id is None  # nobody was there
    try:
        server.start()
        for steps in (range(20, 30), range(30, 30)):
            with open_tracker(config, pipeline_key="pipeline", tags={}, params={}) as tracker:
                with tracker.stage("pretrain", key="k", params={"lr": 0.1}, tags={}, inputs={}) as run:
                    run.follow(metrics_file)
                    for step in steps:
                        log.log(step, {"train/loss": step})
                tracker.log_artifact(report, contains_text=True)
                version = tracker.register(
                    "served-encoder", tmp_path / "encoder", alias="champion", tags={}, serving=serving()
                )
        assert version == "1"
        client = MlflowClient(server.uri)
        history = client.get_metric_history(run.run_id, "train/loss")
        assert sorted(metric.step for metric in history) == list(range(30))
        assert client.get_run(run.run_id).info.status == "FINISHED"
        assert [file.path for file in client.list_artifacts(tracker.run_id)] == ["report.html"]
        place = client.get_model_version_download_uri("served-encoder", version)
        back = download_artifacts(place, dst_path=str(tmp_path / "back"), tracking_uri=server.uri)
        assert {"MLmodel", "config.json"} <= {path.name for path in Path(back).iterdir()}
    finally:
        server.stop()
    assert "did not take all records" in capsys.readouterr().err
