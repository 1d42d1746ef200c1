"""The same curve through a real server that starts late and goes away in between."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from bertline.foundation.metrics_log import MetricsLog
from bertline.tracking import sending as sending_module
from bertline.tracking.sending import register, send, send_all, sending
from bertline.tracking.serving import Registration
from ports import free_port
from serving_inputs import serving
from tracking_inputs import files_of, finish, opened, record, runs_of, steps_of, tracking


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

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, number)
            self._process.wait(600)
            self._process = None


def test_a_server_that_comes_late_and_is_killed_in_between_has_one_clean_curve(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending_module, "_EVERY_S", 0.1)
    monkeypatch.setattr(sending_module, "_LONGEST_PAUSE_S", 1.0)
    server = Server(tmp_path)
    config = tracking(server.uri, "server")
    content = opened(folder, record(config, params={"lr": 0.1}))
    log = MetricsLog(folder / "metrics.jsonl")

    def log_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 600
        while not condition():
            assert time.monotonic() < deadline
            rows.append(len(rows))
            log.log(rows[-1], {"train/loss": float(rows[-1])})
            time.sleep(0.02)

    rows: list[int] = []
    output = ""

    def has_said(words: str) -> bool:
        nonlocal output
        output += capsys.readouterr().out
        return words in output

    try:
        with sending(folder):
            log_until(lambda: has_said("takes no records now"))
            server.start()
            log_until(lambda: has_said("takes records again"))
            output = ""
            server.stop(signal.SIGKILL)
            log_until(lambda: has_said("takes no records now"))
            server.start()
            log_until(lambda: has_said("takes records again"))
            server.stop(signal.SIGKILL)
            (folder / "report.html").write_text("hello")
            content.pipeline.log_artifact(folder / "report.html", contains_text=True)
            finish(folder, content)
        warning = capsys.readouterr().err
        assert warning.count("warning:") == 1 and "bertline send" in warning
        assert send_all([folder]) == [folder]
        server.start()
        assert send(folder) and send(folder)
        runs = runs_of(config)
        assert {run.info.status for run in runs.values()} == {"FINISHED"}
        assert steps_of(config, runs["pretrain"], "train/loss") == rows
        assert files_of(config, runs["preset pipeline-1"]) == {"report.html"}
        (tmp_path / "encoder").mkdir()
        (tmp_path / "encoder/config.json").write_text("{}")
        how = Registration(alias="champion", tags={}, serving=serving())
        versions = [register(folder, "served-encoder", tmp_path / "encoder", how) for _ in range(2)]
        assert versions == ["1", "1"]
        place = MlflowClient(server.uri).get_model_version_download_uri("served-encoder", "1")
        back = download_artifacts(place, dst_path=str(tmp_path / "back"), tracking_uri=server.uri)
        assert {"MLmodel", "config.json"} <= {path.name for path in Path(back).iterdir()}
    finally:
        server.stop()
