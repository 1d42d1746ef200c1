"""Processes without the seconds that a start-up takes: forks of one server, which has imported everything.

What is handed to a process must be importable, so it lives in modules of this folder and not in the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import SimpleNamespace

import pytest

# One server for all tests of a process of pytest, so it imports what any of them needs.
PRELOADED = [
    "pretraining_processes", "finetuning_inputs", "sweep_pieces", "bertline.sweep.run", "hydra._internal.utils",
    "bertline.run.stage", "bertline.planning", "tracking_inputs",
]  # fmt: skip
_CONTEXT = multiprocessing.get_context("forkserver")


def forking() -> ForkServerContext:
    """The context of the server, which has been started. It takes its import path from the environment only."""
    _CONTEXT.set_forkserver_preload(PRELOADED)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return _CONTEXT


def start() -> None:
    """Start the server and wait until it has imported everything."""
    process = forking().Process(target=int)
    process.start()
    process.join()


def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the workers of sweeps be forks too, where it does not matter how they start."""
    from bertline.sweep import workers  # brings Optuna, which pretrainings do not need

    monkeypatch.setattr(workers, "multiprocessing", SimpleNamespace(get_context=lambda _: forking()))


def run_recipe(
    folder: Path, script: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python SCRIPT ARGUMENTS` in a folder; the library is the one that is tested, whatever the folder has."""
    return _forked(folder, [script, *arguments], environment)


def run_bertline(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`bertline ARGUMENTS` in a folder."""
    return _forked(folder, ["bertline", *arguments], environment)


def _forked(folder: Path, words: list[str], environment: Mapping[str, str] | None) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as temporary:
        output, errors = Path(temporary, "output"), Path(temporary, "errors")
        process = forking().Process(target=_run, args=(folder, words, environment or {}, output, errors))
        process.start()
        process.join()
        assert process.exitcode is not None
        return subprocess.CompletedProcess(words, process.exitcode, output.read_text(), errors.read_text())


def _run(folder: Path, words: list[str], environment: Mapping[str, str], output: Path, errors: Path) -> None:
    for stream, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    # As set, they keep a recipe from starting its program again (`use_training_environment`).
    os.environ.update({"GOMP_SPINCOUNT": "1000", "GLIBC_TUNABLES": "", **environment})
    os.chdir(folder)
    sys.argv = words
    if words[0] == "bertline":
        runpy.run_module("bertline", run_name="__main__")
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    runpy.run_path(words[0], run_name="__main__")
