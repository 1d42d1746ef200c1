"""Checks of the stores that a run writes to: MLflow, the studies' database, the DVC remote."""

from __future__ import annotations

import os
import secrets
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bertline.doctor.finding import Finding, green, note, red, unused
from bertline.doctor.folders import existing
from bertline.tracking.config import TrackingConfig, database_file, masked

_CONNECT_S = 5
_BUSY_S = 3.0
_NOT_LET_IN = ("UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED", "PERMISSION_DENIED")  # MLflow's names of HTTP 401 and 403


def mlflow_findings(tracking: TrackingConfig) -> Iterator[Finding]:
    """Check that runs can be recorded in MLflow."""
    file = database_file(tracking.uri)
    if not tracking.enabled:
        yield unused("MLflow", "not used: tracking.enabled is false")
    elif file is not None:
        yield sqlite_finding("MLflow", file, setting="tracking.uri")
    else:
        yield _server_finding(tracking)


def _server_finding(tracking: TrackingConfig) -> Finding:
    shown = masked(tracking.uri)
    theirs = ""
    if tracking.uri.startswith(("http://", "https://")):
        problem, theirs = _reach(tracking.uri)
        if problem is not None:
            return red(
                "MLflow",
                f"{shown} does not answer: {problem}",
                "Start the server, open its port for this machine, or correct tracking.uri (a local store: "
                "tracking.uri=sqlite:///runs/mlflow.db).",
            )
    from bertline.tracking.trial_run import ArtifactsRefusedError, try_run

    try:
        try_run(tracking.uri, tracking.experiment_name)
    except ArtifactsRefusedError as error:
        return red(
            "MLflow",
            f"{shown} takes runs, but no artifacts: {_first_line(error)}",
            "Give the server a place for artifacts that it can write (mlflow server --artifacts-destination), and the "
            "keys of that storage.",
        )
    except Exception as error:
        return red("MLflow", f"{shown} answers, but a run cannot be written: {_first_line(error)}", _advice(error))
    ours = version("mlflow")
    if theirs and theirs.split(".")[0] != ours.split(".")[0]:
        return note(
            "MLflow",
            f"{shown} takes runs and artifacts; it has version {theirs}, this machine {ours}",
            "Use the same major version on both sides: records may be lost between them.",
        )
    return green("MLflow", f"{shown} takes runs and artifacts{f', version {theirs}' if theirs else ''}")


def _reach(uri: str) -> tuple[str | None, str]:
    """Return what is wrong with an HTTP server (None: nothing), and its version, if it says one."""
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/version", timeout=_CONNECT_S) as answer:
            said = answer.read(64).decode("utf-8", errors="replace").strip()
    except urllib.error.HTTPError:
        return None, ""  # it answers; whether it lets us in is seen when a run is written
    except OSError as error:
        return str(getattr(error, "reason", None) or error), ""
    return None, said if said[:1].isdigit() else ""


def _advice(error: Exception) -> str:
    message = str(error)
    if "Host header" in message or "rebinding" in message:
        return "Start the server with this address among its allowed hosts: mlflow server --allowed-hosts HOST:PORT."
    # The code, not the message: an address holds digits of its own, port 40151 the 401 of a missing password. Words are
    # looked for with a space: the address holds a host and the experiment's name, which may be any single word.
    if getattr(error, "error_code", None) in _NOT_LET_IN or " credential" in message:
        return (
            "Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, of a user who may "
            "write to the experiment."
        )
    if " was deleted;" in message:
        return "Restore the experiment in MLflow, or choose another name with tracking.experiment_name."
    return "Look at the server's log; tracking.uri must be the address of an MLflow server or of its database."


def studies_findings(
    tracking: TrackingConfig, *, several_machines: bool, num_sweep_tasks: int = 1
) -> Iterator[Finding]:
    """Check the database of Optuna's studies.

    Args:
        tracking: The tracking section.
        several_machines: Whether the configuration runs on more than one machine.
        num_sweep_tasks: Number of machines that share a sweep.

    Raises:
        ConfigError: The address is none of a database.
    """
    from bertline.sweep.store import database_url
    from bertline.tracking.config import STUDIES_VARIABLE

    url = database_url(os.environ.get(STUDIES_VARIABLE) or tracking.studies_url)
    if url.get_backend_name() == "sqlite":
        finding = sqlite_finding("studies", Path(str(url.database)), setting="tracking.studies_url")
        if finding.status == "green" and num_sweep_tasks > 1:
            finding = red(
                "studies",
                f"{finding.found}; the {num_sweep_tasks} machines of a sweep cannot share it",
                "Use PostgreSQL, tracking.studies_url=postgresql://USER@HOST/DATABASE, or "
                "runtime.launcher.sweep_tasks=1.",
            )
        elif finding.status == "green" and several_machines:
            finding = note(
                "studies",
                f"{finding.found}; several machines cannot share it",
                "To sweep on several machines, use PostgreSQL: tracking.studies_url=postgresql://USER@HOST/DATABASE.",
            )
        yield finding
        return
    yield _postgresql_finding(url)


def _postgresql_finding(url: Any) -> Finding:
    import sqlalchemy

    from bertline.sweep.store import shown, without_password

    place = shown(url)
    try:
        engine = sqlalchemy.create_engine(
            url, poolclass=sqlalchemy.pool.NullPool, connect_args={"connect_timeout": _CONNECT_S}
        )
        with engine.connect() as connection:
            ask = lambda query: connection.execute(sqlalchemy.text(query)).scalar()  # noqa: E731
            number = str(ask("SHOW server_version")).split()[0]
            read_only = ask("SELECT pg_is_in_recovery()") or ask("SHOW transaction_read_only") == "on"
            creates = ask("SELECT has_schema_privilege(current_schema(), 'CREATE')")
    except ImportError:
        return red(
            "studies",
            "tracking.studies_url is a PostgreSQL database, and psycopg is not installed",
            "Install it: pip install 'bertline[postgresql]'.",
        )
    except sqlalchemy.exc.SQLAlchemyError as error:
        reason = without_password(_first_line(getattr(error, "orig", None) or error), url)
        return red(
            "studies",
            f"{place} does not let us in: {reason}",
            "Start the server, correct tracking.studies_url, create the database (createdb NAME), or give the password "
            "in ~/.pgpass, PGPASSWORD or BERTLINE_STUDIES_URL.",
        )
    if read_only or not creates:
        return red(
            "studies",
            f"{place} is read-only for this user",
            "Use the primary server, and let the user create tables: GRANT CREATE ON SCHEMA public TO NAME.",
        )
    return green("studies", f"{place}, PostgreSQL {number}, writable")


def sqlite_finding(check: str, file: Path, *, setting: str) -> Finding:
    """Check that a database file can be written, with a transaction that is rolled back; a missing file stays missing.

    Args:
        check: Name of the check.
        file: The file.
        setting: Key that names it, for messages.
    """
    elsewhere = f"Correct the rights of the file and its folder, or choose another file with {setting}."
    if not file.exists():
        if os.access(existing(file.parent), os.W_OK):
            return green(check, f"{file} is made by the first run")
        return red(check, f"{file} cannot be made: {existing(file.parent)} is not writable", elsewhere)
    try:
        with closing(sqlite3.connect(file, timeout=_BUSY_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE doctor_was_here (number INTEGER)")
            connection.execute("ROLLBACK")
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            return note(check, f"{file} is being written by another process", "Nothing, if a run is in progress.")
        if "not a database" in str(error) or "malformed" in str(error):
            return red(check, f"{file} is damaged: {error}", f"Move it away, or choose another file with {setting}.")
        return red(check, f"{file} cannot be written: {error}", elsewhere)
    return green(check, f"{file}, SQLite, writable")


def remote_findings(repository: Path) -> Iterator[Finding]:
    """Write a small file to the default DVC remote, read it and delete it."""
    from dvc.config import Config

    config = Config(str(repository / ".dvc"))
    name = config["core"].get("remote")
    if name is None:
        yield unused("DVC remote", "not used: none is configured")
        return
    if name not in config["remote"]:
        yield red(
            "DVC remote",
            f"core.remote is {name}, which is not configured",
            f"Add it: dvc remote add --default {name} ADDRESS, or choose another: dvc remote default NAME.",
        )
        return
    shown = f"{name} ({masked(config['remote'][name]['url'])})"
    try:
        _write_to_remote(repository, name)
    except Exception as error:
        yield red("DVC remote", f"{shown} cannot be written: {_first_line(error)}", _remote_advice(error))
        return
    yield green("DVC remote", f"{shown}, writable")


def _write_to_remote(repository: Path, name: str) -> None:
    from dvc.repo import Repo

    with Repo(str(repository)) as repo:
        remote = repo.cloud.get_remote(name)
        folder, path = remote.path, remote.fs.join(remote.path, f"doctor-{secrets.token_hex(4)}")
        content = secrets.token_bytes(64)
        made_folder = not remote.fs.exists(folder)
        remote.fs.makedirs(folder, exist_ok=True)
        try:
            remote.fs.pipe_file(path, content)
            if remote.fs.cat_file(path) != content:
                raise OSError("what is read back differs from what was written")
        finally:
            with suppress(Exception):
                remote.fs.remove(path)
            if made_folder and Path(folder).is_absolute():
                with suppress(OSError):
                    Path(folder).rmdir()


def _remote_advice(error: Exception) -> str:
    if "pip install" in str(error) or type(error).__name__ in ("RemoteMissingDepsError", "ModuleNotFoundError"):
        return "Install what this kind of remote needs, for S3: pip install 'bertline[s3]'."
    return (
        "Check the address (dvc remote list), that it can be reached from here, and the keys in the environment "
        "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, ...)."
    )


def _first_line(error: object) -> str:
    lines = masked(str(error)).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
