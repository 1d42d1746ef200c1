"""The stores of a run: a wrong address, no rights, a damaged file, each with its own sentence."""

from __future__ import annotations

import http.server
import os
import sqlite3
import threading
from contextlib import closing

import pytest

from bertline.doctor.servers import mlflow_findings, sqlite_finding, studies_findings
from bertline.foundation.errors import ConfigError


def only(findings):
    (found,) = findings
    return found


def tracking(config, uri="sqlite:///none.db", **changes):
    changed = [f"tracking.{key}={value}" for key, value in changes.items()]
    return config(f"tracking.uri={uri}", *changed).tracking


def test_a_database_file_that_is_missing_is_not_made(tmp_path):
    found = sqlite_finding("studies", tmp_path / "runs/studies.db", setting="tracking.studies_url")
    assert (found.status, list(tmp_path.iterdir())) == ("green", [])


def test_a_database_file_is_tried_and_stays_as_it_is(tmp_path):
    file = tmp_path / "studies.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE study (id INTEGER)")
        connection.commit()
    before = file.read_bytes()
    assert sqlite_finding("studies", file, setting="x").status == "green"
    assert file.read_bytes() == before


def test_a_database_file_that_is_damaged_or_busy_is_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("bertline.doctor.servers._BUSY_S", 0.1)
    damaged, busy = tmp_path / "damaged.db", tmp_path / "busy.db"
    damaged.write_text("no database at all" * 100)
    found = sqlite_finding("MLflow", damaged, setting="tracking.uri")
    assert (found.status, "is damaged" in found.found, "tracking.uri" in found.fix) == ("red", True, True)
    with closing(sqlite3.connect(busy, isolation_level=None)) as writer:
        writer.execute("CREATE TABLE a (b INTEGER)")
        writer.execute("BEGIN EXCLUSIVE")
        assert sqlite_finding("MLflow", busy, setting="tracking.uri").status == "note"


def test_a_database_file_that_cannot_be_made_is_red_with_the_setting_that_names_another(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    found = sqlite_finding("studies", tmp_path / "below/studies.db", setting="tracking.studies_url")
    assert found.found == f"{tmp_path}/below/studies.db cannot be made: {tmp_path} is not writable"
    assert (found.status, "tracking.studies_url" in found.fix) == ("red", True)


def test_a_database_file_that_may_not_be_written_is_red(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise sqlite3.OperationalError("attempt to write a readonly database")

    (tmp_path / "studies.db").touch()
    monkeypatch.setattr(sqlite3, "connect", refused)
    found = sqlite_finding("studies", tmp_path / "studies.db", setting="x")
    assert (found.status, "readonly" in found.found) == ("red", True)


def test_tracking_that_is_off_is_not_used(config):
    assert only(mlflow_findings(tracking(config, enabled="false"))).status == "unused"


def test_an_mlflow_server_that_is_not_there_is_red_without_waiting(config):
    found = only(mlflow_findings(tracking(config, "http://127.0.0.1:9")))
    assert (found.status, "does not answer" in found.found, "tracking.uri" in found.fix) == ("red", True, True)


@pytest.mark.parametrize(
    ("path", "status", "body", "fix"),
    [
        ("", 401, "", "MLFLOW_TRACKING_TOKEN"),
        ("", 403, "", "MLFLOW_TRACKING_TOKEN"),
        ("", 403, '{"error_code": "PERMISSION_DENIED", "message": "no"}', "MLFLOW_TRACKING_TOKEN"),
        ("", 403, "Invalid Host header - possible DNS rebinding attack detected", "--allowed-hosts"),
        ("", 500, "boom", "server's log"),
        ("/401/403", 500, "boom", "server's log"),  # digits of the address, as in port 40151
        ("/credentials/deleted", 500, "boom", "server's log"),  # words of the address, as an experiment's name
    ],
)
def test_a_server_that_answers_and_refuses_a_run_is_red_with_its_own_remedy(config, path, status, body, fix):
    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer()

        def do_POST(self):
            self.answer()

        def answer(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = only(mlflow_findings(tracking(config, f"http://127.0.0.1:{server.server_port}{path}")))
        server.shutdown()
    assert found.status == "red"
    assert "a run cannot be written" in found.found
    assert fix in found.fix


@pytest.mark.parametrize(
    "address", ["postgresql://ada:s3cret@127.0.0.1:9/studies", "postgresql://127.0.0.1:9/studies?password=s3cret"]
)
def test_a_studies_database_that_is_not_there_is_red_without_its_password(config, monkeypatch, address):
    pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")
    monkeypatch.setenv("BERTLINE_STUDIES_URL", address)
    found = only(studies_findings(tracking(config), several_machines=True))
    assert (found.status, "~/.pgpass" in found.fix) == ("red", True)
    assert "s3cret" not in found.found + found.fix


def test_a_driver_that_is_missing_is_named(config, monkeypatch):
    import sqlalchemy

    def missing(*_, **__):
        raise ModuleNotFoundError("No module named 'psycopg'")

    monkeypatch.setattr(sqlalchemy, "create_engine", missing)
    section = tracking(config, studies_url="postgresql://ada@db/studies")
    assert "bertline[postgresql]" in only(studies_findings(section, several_machines=False)).fix


def test_another_kind_of_database_is_an_error_of_the_configuration(config):
    with pytest.raises(ConfigError, match="mysql"):
        list(studies_findings(tracking(config, studies_url="mysql://db/studies"), several_machines=False))


def test_several_machines_cannot_share_a_file_of_studies(config, tmp_path):
    section = tracking(config, studies_url=f"sqlite:///{tmp_path}/studies.db")
    assert only(studies_findings(section, several_machines=False)).status == "green"
    assert only(studies_findings(section, several_machines=True)).status == "note"
    found = only(studies_findings(section, several_machines=True, num_sweep_tasks=4))
    assert (found.status, "runtime.launcher.sweep_tasks=1" in found.fix) == ("red", True)
