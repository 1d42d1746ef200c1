"""One finished line on a tiny slice, made once for all tests that need it."""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

_spec = importlib.util.spec_from_file_location("smoke", Path(__file__).resolve().parents[1] / "smoke.py")
assert _spec is not None and _spec.loader is not None
smoke: ModuleType = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(smoke)

Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process make the finished line while the others run what does not need it; what does comes last."""
    needs_line = [item for item in items if "smoke_line" in getattr(item, "fixturenames", ())]
    of_line = set(needs_line)
    others = [item for item in items if item not in of_line]
    maker, waiting = needs_line[:1], needs_line[1:]
    # The sections of the README take longest: begun before the others, none is left at the end for one process alone.
    waiting.sort(key=lambda item: "test_readme" not in item.nodeid)
    items[:] = [*maker, *others, *waiting]


@pytest.fixture(scope="session")
def smoke_line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a clone in which `dvc repro` has run the smoke preset. Read only: take `line` to change things."""
    base = tmp_path_factory.getbasetemp()
    # Workers of pytest-xdist have a folder each below a common one: the first to come makes the line for all.
    shared = base.parent if base.name.startswith("popen-") else base
    folder = shared / "smoke-line"
    with (shared / "smoke-line.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "smoke-line.done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            smoke.clone(folder)
            smoke.run(["dvc", "repro"], folder)
            (shared / "smoke-line.done").touch()
    return folder


@pytest.fixture
def line(smoke_line: Path, tmp_path: Path) -> Path:
    """A copy of the finished line that a test may change."""
    return shutil.copytree(smoke_line, tmp_path / "line", symlinks=True)


@pytest.fixture
def run() -> Run:
    """`run(folder, "dvc", "repro")`: run a command there; output is captured, a failure is the test's to judge."""

    def in_folder(folder: Path, *command: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=folder, env=smoke.environment(folder, **extra), capture_output=True, text=True, check=False
        )

    return in_folder
