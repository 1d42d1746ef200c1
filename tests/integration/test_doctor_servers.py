"""The doctor against real servers: each is found green with its version, and red when it refuses or is silent."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bertline.doctor.servers import mlflow_findings, remote_findings, studies_findings
from bertline.tracking.config import TrackingConfig
from servers import S3, MLflowServer, PostgreSQL

ROOT = Path(__file__).resolve().parents[2]


def tracking(uri="sqlite:///none.db", studies_url="sqlite:///none.db"):
    return TrackingConfig(
        enabled=True,
        uri=uri,
        experiment_name="doctor",
        log_text=False,
        studies_url=studies_url,
        system_metrics=False,
        system_metrics_every_s=10.0,
    )


def only(findings):
    (found,) = findings
    return found


@pytest.fixture(scope="module")
def postgresql():
    with PostgreSQL() as server:
        yield server


@pytest.fixture(scope="module")
def s3():
    with S3() as server:
        server.bucket("bertline")
        yield server


def test_a_server_that_takes_runs_and_artifacts_is_green_and_keeps_none_of_them(tmp_path):
    pytest.importorskip("mlflow")
    with MLflowServer(f"sqlite:///{tmp_path}/mlflow.db", str(tmp_path / "artifacts"), hosts="127.0.0.1:*") as server:
        uri = f"http://127.0.0.1:{server.port}"
        found = only(mlflow_findings(tracking(uri)))
        assert (found.status, "takes runs and artifacts, version 3." in found.found) == ("green", True), found
        assert [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()] == []
        from mlflow import MlflowClient

        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name("doctor")
        assert client.search_runs([experiment.experiment_id]) == []
        # By a name that the server was not told, its host check refuses.
        refused = only(mlflow_findings(tracking(f"http://localhost:{server.port}")))
        assert (refused.status, "--allowed-hosts" in refused.fix) == ("red", True), refused
        shutil.rmtree(tmp_path / "artifacts", ignore_errors=True)
        (tmp_path / "artifacts").touch()  # a file, where the server wants to make folders
        without = only(mlflow_findings(tracking(uri)))
        assert (without.status, "no artifacts" in without.found) == ("red", True), without.found


def test_studies_in_postgresql_are_green_and_red_for_a_wrong_name_password_or_right(postgresql):
    url = postgresql.database("doctor")
    found = only(studies_findings(tracking(studies_url=masked(url)), several_machines=True))
    assert found.status == "red"  # the password is in no environment variable
    os.environ["BERTLINE_STUDIES_URL"] = url
    try:
        found = only(studies_findings(tracking(), several_machines=True))
        assert (found.status, "writable" in found.found, postgresql.password in found.found) == ("green", True, False)
        os.environ["BERTLINE_STUDIES_URL"] = url + "_that_is_not_there"
        found = only(studies_findings(tracking(), several_machines=True))
        assert (found.status, "does not exist" in found.found) == ("red", True)
        os.environ["BERTLINE_STUDIES_URL"] = f"{url}?options=-c%20default_transaction_read_only%3Don"
        found = only(studies_findings(tracking(), several_machines=True))
        assert (found.status, "read-only" in found.found) == ("red", True)
    finally:
        del os.environ["BERTLINE_STUDIES_URL"]


def masked(url):
    """The address without its password."""
    name, _, host = url.partition("@")
    return f"{name.rpartition(':')[0]}@{host}"


def test_a_remote_in_s3_is_green_and_red_without_bucket_or_keys(s3, tmp_path, monkeypatch):
    pytest.importorskip("dvc_s3", reason="the extra `s3` is not installed")
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    subprocess.run(["dvc", "init", "--no-scm", "--quiet"], cwd=tmp_path, check=True)

    def remote(address):
        command = ["dvc", "remote", "add", "--quiet", "--force", "--default", "far", address]
        subprocess.run(command, cwd=tmp_path, check=True)
        return only(remote_findings(tmp_path))

    found = remote("s3://bertline/store")
    assert (found.status, "s3://bertline/store" in found.found) == ("green", True), found
    assert remote("s3://no-such-bucket-here/store").status == "red"


def test_servers_that_take_connections_and_say_nothing_do_not_keep_the_doctor(tmp_path):
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = subprocess.run(
            [
                sys.executable, ROOT / "pipelines/doctor.py", "--json", f"runtime.runs_folder={tmp_path}/runs",
                f"tracking.uri=http://{address}", f"tracking.studies_url=postgresql://ada@{address}/studies",
            ],
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, timeout=600,
        )  # fmt: skip
    lines = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert {name for name, one in lines.items() if one["status"] == "red"} == {"MLflow", "studies"}
    assert lines["runs: lock"]["status"] == "green"
