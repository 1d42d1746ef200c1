"""One finished pipeline on a tiny slice, made once for all tests that need it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import once
import planted
import smoke
import warm_python

Run = Callable[..., subprocess.CompletedProcess[str]]
REAL_TASK = "docs_library"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process make the finished pipeline while the others run what does not need it; what does comes last."""
    needs_pipeline = [item for item in items if "smoke_pipeline" in getattr(item, "fixturenames", ())]
    of_pipeline = set(needs_pipeline)
    others = [item for item in items if item not in of_pipeline]
    maker, waiting = needs_pipeline[:1], needs_pipeline[1:]
    # Documented commands take longest: begun before the others, none is left at the end for one process alone.
    waiting.sort(key=lambda item: "test_documented_commands" not in item.nodeid)
    items[:] = [*maker, *others, *waiting]


@pytest.fixture(scope="session")
def smoke_pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a clone in which `dvc repro` has run the smoke preset. Read only (see `pipeline`)."""

    def make(folder: Path) -> None:
        smoke.clone(folder)
        # test_secrets.py searches the finished pipeline for these.
        smoke.run(["git", "remote", "add", "company", planted.GIT_REMOTE], folder)
        # Every stage is run by a real process, but of the tasks only one: the others would only import the same again.
        smoke.run(["dvc", "repro", f"sweep@{REAL_TASK}"], folder, **planted.ENVIRONMENT)
        others = [f"sweep@docs_{name}" for name in ("match", "parameters", "search")]
        smoke.run(["dvc", "repro", *others], folder, programs=warm_python.programs(), **planted.ENVIRONMENT)
        smoke.run(["dvc", "repro"], folder, **planted.ENVIRONMENT)

    return once.made(tmp_path_factory, "smoke-pipeline", make)


@pytest.fixture
def pipeline(smoke_pipeline: Path, tmp_path: Path) -> Path:
    """A copy of the finished pipeline that a test may change."""
    return shutil.copytree(smoke_pipeline, tmp_path / "pipeline", symlinks=True)


@pytest.fixture
def run() -> Run:
    """`run(folder, "dvc", "repro")`: run a command there; output is captured, a failure is the test's to judge.

    `python`, `dvc` and this interpreter are those of `warm_python`: that a stage imports all it needs is known from the
    finished pipeline, which real processes have made.
    """
    programs = warm_python.programs()

    def in_folder(folder: Path, *command: str, **extra: str) -> subprocess.CompletedProcess[str]:
        warm = [str(programs / "python") if word == sys.executable else word for word in command]
        environment = smoke.environment(folder, programs=programs, **extra)
        return subprocess.run(warm, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    return in_folder
