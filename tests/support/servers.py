"""Real servers on loopback for tests: PostgreSQL (Debian's), S3 (moto) and MLflow.

Each is a context manager that stops what it started. Processes end too if that of the context manager is killed.
Where a program or package is missing, the test is skipped.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

import found_processes
from ports import free_port

_NOBODY = 65534
STARTS_WITHIN_S = 600.0


class Server:
    """A server process in a group of its own; a subclass gives the command."""

    name: str
    port: int
    folder: Path | None = None
    """Deleted at the end, also if this process is killed."""
    _process: subprocess.Popen[bytes] | None = None
    _watcher: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """Further arguments of `subprocess.Popen`."""
        return {}

    def is_up(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Start the process, and wait until it answers; fail if it ends or is too slow."""
        options, (name, value) = self.options(), ("BERTLINE_TEST_SERVER", secrets.token_hex(8))
        environment = {**options.pop("env", os.environ), name: value}
        self._watcher = found_processes.watched(f"{name}={value}", self.folder, [])
        options |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        self._process = subprocess.Popen(self.command(), env=environment, **options)
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not self.is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                pytest.fail(f"{self.name} did not start in {STARTS_WITHIN_S:.0f} s")
            time.sleep(0.2)

    def send_signal(self, number: int) -> None:
        """Send all its processes a signal."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it, and wait for its end."""
        if self._process is not None:
            if self._process.poll() is None:
                self.send_signal(number)
            self._process.wait(600)
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
        self._process = self._watcher = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class PostgreSQL(Server):
    """PostgreSQL in a temporary folder; its only user is `ada`, whose password must be given over TCP too."""

    name = "PostgreSQL"

    def __init__(self, password: str = "not-for-logs") -> None:
        pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")
        self._initdb, self._postgres = _postgresql("initdb"), _postgresql("postgres")
        self.password, self.port = password, free_port()
        self.password_in_address = "".join(c if c.isalnum() else f"%{ord(c):02X}" for c in password)

    def __enter__(self) -> Self:
        """Make the database, and start."""
        self.folder = Path(tempfile.mkdtemp(prefix="bertline-postgresql-"))
        if os.getuid() == 0:
            shutil.chown(self.folder, _NOBODY, _NOBODY)
        password_file = self.folder / "password"
        password_file.write_text(f"{self.password}\n")
        words = ["-U", "ada", "--auth=scram-sha-256", f"--pwfile={password_file}", "--no-sync"]
        command = [self._initdb, "-D", f"{self.folder}/data", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **self.options())
        return super().__enter__()

    def command(self) -> list[str]:
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=200"]
        flags = [word for setting in settings for word in ("-c", setting)]
        return [self._postgres, "-D", f"{self.folder}/data", "-p", str(self.port), *flags]

    def options(self) -> dict[str, Any]:
        """PostgreSQL refuses to run as root."""
        nobody = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        return {"cwd": self.folder, **(nobody if os.getuid() == 0 else {})}

    def is_up(self) -> bool:
        """Whether it takes connections: it listens while it starts, and refuses them."""
        import psycopg

        try:
            psycopg.connect(self._url("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop it, and cancel what it is asked; TERM would wait for the connections that pools keep open."""
        super().stop(number)

    def database(self, name: str) -> str:
        """Create a database, and return its address with the password."""
        import psycopg

        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._url(name)

    def environment(self) -> dict[str, str]:
        """The variable from which its clients read the password, if their address lacks it."""
        return {"PGPASSWORD": self.password}

    def _url(self, database: str) -> str:
        return f"postgresql://ada:{self.password_in_address}@127.0.0.1:{self.port}/{database}"


class S3:
    """An S3 server in the memory of this process."""

    key, secret = "AKIAMADEUPFORTESTS", "made-up-secret-key-for-tests"

    def __enter__(self) -> Self:
        moto = pytest.importorskip("moto.server", reason="moto[s3], of the extra `dev`, is not installed")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._server = moto.ThreadedMotoServer("127.0.0.1", port, verbose=False)
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stop()

    def bucket(self, name: str) -> Any:
        """Create a bucket, and return it as boto3's resource."""
        import boto3

        session = boto3.Session(aws_access_key_id=self.key, aws_secret_access_key=self.secret, region_name="us-east-1")
        return session.resource("s3", endpoint_url=self.url).create_bucket(Bucket=name)

    def environment(self) -> dict[str, str]:
        """The variables by which MLflow, DVC and boto3 reach it; the only place of its keys."""
        addresses = dict.fromkeys(("AWS_ENDPOINT_URL", "MLFLOW_S3_ENDPOINT_URL"), self.url)
        keys = {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret}
        return {**keys, **addresses, "AWS_DEFAULT_REGION": "us-east-1"}


class MLflowServer(Server):
    """The `mlflow server` of docs/howto/mlflow.md: it answers only those that call it by `127.0.0.1` and its port."""

    name = "mlflow server"

    def __init__(self, store: str, artifacts: str, *, environment: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._store, self._artifacts, self._environment = store, artifacts, dict(environment or {})

    def command(self) -> list[str]:
        """The one command in a `sh` block of the page, with addresses of this machine."""
        page = (Path(__file__).resolve().parents[2] / "docs/howto/mlflow.md").read_text(encoding="utf-8")
        (block,) = re.findall(r"^```sh\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
        program, *documented = shlex.split(block.replace("\\\n", " "))
        here = {
            "0.0.0.0": "127.0.0.1",
            "mlflow.example.org": f"127.0.0.1:{self.port}",
            "postgresql://mlflow@db.example.org/mlflow": self._store,
            "s3://models/mlflow": self._artifacts,
        }
        arguments = [here.get(one, one) for one in documented]
        return [sys.executable, "-m", program, *arguments, "--port", str(self.port), "--workers", "1"]

    def options(self) -> dict[str, Any]:
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        return {"env": {**os.environ, **quiet, **self._environment}}

    def is_up(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.uri}/health", timeout=2)
        except OSError:
            return False
        return True


def wait_until(happened: Callable[[], bool], *, timeout_s: float = 600.0, every_s: float = 0.1) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(every_s)


def _postgresql(program: str) -> str:
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))  # not on the path of most
    found = shutil.which(program) or (str(debian[-1]) if debian else None)
    if found is None:
        pytest.skip(f"PostgreSQL's {program} is not installed")
    return found
