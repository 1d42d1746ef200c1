"""Real servers on loopback for tests: PostgreSQL (Debian's), S3 (moto), MLflow, and a proxy that delays or is away.

Each is a context manager that stops what it started; what it started ends too if the process of the context manager is
killed. Where a program or package is missing, the test is skipped.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
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


def answers(port: int) -> bool:
    """Whether something listens on a port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """A server process in a group of its own; a subclass gives the command."""

    name: str
    port: int
    variable: str = ""
    """What the processes of the running server have in their environment, as `NAME=VALUE`."""
    _process: subprocess.Popen[bytes] | None = None
    _watcher: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """Further arguments of `subprocess.Popen`."""
        return {}

    def leaves(self) -> Path | None:
        """A folder that is deleted if this process is killed."""
        return None

    def is_up(self) -> bool:
        return answers(self.port)

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        self.launch()
        self.wait_until_up()

    def launch(self) -> None:
        """Start the process, and do not wait for it."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        options, (name, value) = self.options(), ("BERTLINE_TEST_SERVER", secrets.token_hex(8))
        self.variable = f"{name}={value}"
        command, environment = self.command(), {**options.get("env", os.environ), name: value}
        self._watcher = found_processes.watched(self.variable, self.leaves(), [])
        self._process = subprocess.Popen(command, **{**quiet, **options, "env": environment})

    def wait_until_up(self) -> None:
        """Wait until it answers; fail if it ended or is too slow."""
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not self.is_up():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                pytest.fail(f"{self.name} did not start in {STARTS_WITHIN_S:.0f} s")
            time.sleep(0.2)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it, and wait for its end."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, number)
            self._process.wait(600)
            self._process = None
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
            self._watcher = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class RayNode(Server):
    """A node of a Ray cluster with one core; the first of a cluster has no `head`."""

    name = "Ray"

    def __init__(self, head: RayNode | None = None) -> None:
        pytest.importorskip("ray", reason="the extra `ray` is not installed")
        self.port = head.port if head else free_port()
        # Not the folder of a test: the names of sockets have to be short.
        self._folder = None if head else Path(tempfile.mkdtemp(prefix="ray"))

    @property
    def address(self) -> str:
        """Host and port of the cluster."""
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        part = ["--address", self.address]
        if self._folder is not None:
            part = ["--head", f"--port={self.port}", f"--temp-dir={self._folder}", "--include-dashboard=false"]
        memory = "--object-store-memory=80000000"
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start"]
        return [*ray, *part, "--num-cpus=1", memory, "--disable-usage-stats", "--block"]

    def leaves(self) -> Path | None:
        return self._folder

    def options(self) -> dict[str, Any]:
        return {"env": {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}}

    def works(self) -> bool:
        """Whether a task runs on this node: its process then has the task's name."""
        for pid in found_processes.having(self.variable):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::_whole_or_done"):
                    return True
        return False

    def stop(self, number: int = signal.SIGKILL) -> None:
        """Kill all its processes at once, as the end of a machine does."""
        found_processes.end(lambda: found_processes.having(self.variable))
        super().stop(number)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class PostgreSQL(Server):
    """PostgreSQL in a temporary folder; its only user is `ada`, whose password must be given over TCP too."""

    name = "PostgreSQL"

    def __init__(self, password: str = "not-for-logs") -> None:
        pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")
        self._initdb, self._postgres = _postgresql("initdb"), _postgresql("postgres")
        self.password = password
        self.port = free_port()
        self._folder: Path | None = None

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def password_in_address(self) -> str:
        """The password as an address has it."""
        return "".join(c if c.isalnum() else f"%{ord(c):02X}" for c in self.password)

    def command(self) -> list[str]:
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=200"]
        flags = [word for setting in settings for word in ("-c", setting)]
        return [self._postgres, "-D", str(self._place() / "data"), "-p", str(self.port), *flags]

    def options(self) -> dict[str, Any]:
        return {"cwd": self._place(), **_someone()}

    def leaves(self) -> Path | None:
        return self._place()

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

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def database(self, name: str) -> str:
        """Create a database, and return its address with the password."""
        import psycopg

        name = "".join(c if c.isalnum() else "_" for c in name).lower()[:60]
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._url(name)

    def environment(self) -> dict[str, str]:
        """The variable from which its clients read the password, if their address lacks it."""
        return {"PGPASSWORD": self.password}

    def _url(self, database: str) -> str:
        return f"postgresql://ada:{self.password_in_address}@{self.address}/{database}"

    def _place(self) -> Path:
        """The folder of the database, which is made at the first call."""
        if self._folder is None:
            folder = Path(tempfile.mkdtemp(prefix="bertline-postgresql-"))
            if _someone():
                shutil.chown(folder, _NOBODY, _NOBODY)
            password_file = folder / "password"
            password_file.write_text(f"{self.password}\n")
            words = ["-U", "ada", "--auth=scram-sha-256", f"--pwfile={password_file}", "--no-sync"]
            quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **_someone()}
            subprocess.run([self._initdb, "-D", folder / "data", *words], check=True, **quiet)
            self._folder = folder
        return self._folder


class S3(Server):
    """An S3 server in memory, which forgets all when it ends."""

    name = "the S3 server"
    key, secret = "AKIAMADEUPFORTESTS", "made-up-secret-key-for-tests"

    def __init__(self) -> None:
        pytest.importorskip("moto", reason="moto[s3], of the extra `dev`, is not installed")
        pytest.importorskip("boto3", reason="the extra `s3` is not installed")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        code = "import sys; from moto.server import main; main(sys.argv[1:])"
        return [sys.executable, "-c", code, "-H", "127.0.0.1", "-p", str(self.port)]

    def bucket(self, name: str) -> Any:
        """Create a bucket, and return it as boto3's resource."""
        import boto3

        session = boto3.Session(aws_access_key_id=self.key, aws_secret_access_key=self.secret, region_name="us-east-1")
        return session.resource("s3", endpoint_url=self.url).create_bucket(Bucket=name)

    def environment(self) -> dict[str, str]:
        """The variables by which MLflow, DVC and boto3 reach it; the only place of its keys."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
            "MLFLOW_S3_ENDPOINT_URL": self.url,
        }


class MLflowServer(Server):
    """The `mlflow server` of docs/howto/mlflow.md: it answers only those that call it by one of `hosts`."""

    name = "mlflow server"

    def __init__(self, store: str, artifacts: str, *, hosts: str, environment: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.hosts = hosts
        self._store, self._artifacts, self._environment = store, artifacts, dict(environment or {})

    def command(self) -> list[str]:
        here = {
            "0.0.0.0": "127.0.0.1",
            "mlflow.example.org": self.hosts,
            "postgresql://mlflow@db.example.org/mlflow": self._store,
            "s3://models/mlflow": self._artifacts,
        }
        program, *documented = documented_mlflow_server()
        arguments = [here.get(one, one) for one in documented]
        return [sys.executable, "-m", program, *arguments, "--port", str(self.port), "--workers", "1"]

    def options(self) -> dict[str, Any]:
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        return {"env": {**os.environ, **quiet, **self._environment}}

    def is_up(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2)
        except OSError:
            return False
        return True


def documented_mlflow_server() -> list[str]:
    """The one command in a `sh` block of docs/howto/mlflow.md."""
    page = Path(__file__).resolve().parents[2] / "docs/howto/mlflow.md"
    (block,) = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return shlex.split(block.replace("\\\n", " "))


class Proxy:
    """A TCP proxy on loopback, which can be away, and delays what the client sends to the port `target`."""

    def __init__(self, target: int) -> None:
        self.target, self.delay_s = target, 0.0
        self.num_connections = 0
        self._away = threading.Event()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._listener.close()
        self.go_away()

    def go_away(self) -> None:
        """Cut all connections, and every new one, as a server does that is being replaced."""
        self._away.set()
        for connection in tuple(self._open):
            _cut(connection)

    def come_back(self) -> None:
        """Pass connections on again."""
        self._away.clear()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            try:
                if self._away.is_set():
                    raise OSError
                server = socket.create_connection(("127.0.0.1", self.target), timeout=60)
            except OSError:
                client.close()
                continue
            self.num_connections += 1
            self._open |= {client, server}
            for source, sink, delays in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass_on, args=(source, sink, delays), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, delays: bool) -> None:
        try:
            while data := source.recv(65536):
                if delays:
                    time.sleep(self.delay_s)
                sink.sendall(data)
        except OSError:
            pass
        for connection in (source, sink):
            self._open.discard(connection)
            _cut(connection)


def wait_until(happened: Callable[[], bool], *, timeout_s: float = 600.0, every_s: float = 0.1) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(every_s)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _postgresql(program: str) -> str:
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))  # not on the path of most
    found = shutil.which(program) or (str(debian[-1]) if debian else None)
    if found is None:
        pytest.skip(f"PostgreSQL's {program} is not installed")
    return found


def _someone() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
