"""Settings of all tests, and one finished pipeline on a tiny slice for all that need it."""

from __future__ import annotations

import errno
import gc
import getpass
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import fork_server as server_of_forks
import once
import planted
import smoke
import warm_python
from smoke import Run

# No bound of time: a busy machine would break it.
settings.register_profile("bertline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bertline")

# Without compiled files every process, and every program that a test starts, compiles bertline and the tests again:
# half of the time of a collection.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Test modules and the libraries that they import remain until the end: looking through them for garbage is 11 s of
# processor time out of 27 of a collection, in each process. `pytest_collection_finish` ends it.
gc.disable()

# A shell starts what runs in the background of a script with SIGINT ignored, and that is inherited: tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What programs keep for the user is kept apart from the user's own: measurements of a machine that runs tests are low.
os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir()) / f"bertline-tests-cache-{getpass.getuser()}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process make the finished pipeline while the others run what does not need it; what does comes last."""
    needs_pipeline = [item for item in items if "smoke_pipeline" in getattr(item, "fixturenames", ())]
    of_pipeline = set(needs_pipeline)
    others = [item for item in items if item not in of_pipeline]
    maker, waiting = needs_pipeline[:1], needs_pipeline[1:]
    # Documented commands take longest: begun before the others, none is left at the end for one process alone.
    waiting.sort(key=lambda item: "test_documented_commands" not in item.nodeid)
    items[:] = [*maker, *others, *waiting]


def pytest_collection_finish() -> None:
    """Collect garbage again, but never look through what was collected for tests."""
    gc.freeze()
    gc.enable()


@pytest.fixture(params=[errno.ENOLCK, errno.EOPNOTSUPP], ids=["ENOLCK", "EOPNOTSUPP"])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks, as some mounts of Lustre and NFS."""

    def refuse(handle: Any, operation: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr("fcntl.flock", refuse)


@pytest.fixture(scope="session")
def fork_server() -> None:
    """The server of `fork_server.py` has imported everything: the first test that forks is as fast as the others."""
    server_of_forks.start()


@pytest.fixture(scope="session")
def smoke_pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a clone in which `dvc repro` has run the smoke preset. Read only (see `pipeline`)."""

    def make(folder: Path) -> None:
        smoke.clone(folder)
        # test_secrets.py searches the finished pipeline for these.
        smoke.run(["git", "remote", "add", "company", planted.GIT_REMOTE], folder)
        smoke.run(["dvc", "repro"], folder, programs=warm_python.programs(), **planted.ENVIRONMENT)

    return once.made(tmp_path_factory, "smoke-pipeline", make)


@pytest.fixture
def pipeline(smoke_pipeline: Path, tmp_path: Path) -> Path:
    """A copy of the finished pipeline that a test may change."""
    return shutil.copytree(smoke_pipeline, tmp_path / "pipeline", symlinks=True)


@pytest.fixture
def run() -> Run:
    """`run(folder, "dvc", "repro")`: run a command there; output is captured, a failure is the test's to judge.

    `python`, `dvc` and this interpreter are those of `warm_python`, as they are in the finished pipeline.
    """
    programs = warm_python.programs()

    def in_folder(folder: Path, *command: str, **extra: str) -> subprocess.CompletedProcess[str]:
        warm = [str(programs / "python") if word == sys.executable else word for word in command]
        environment = smoke.environment(folder, programs=programs, **extra)
        return subprocess.run(warm, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    return in_folder
