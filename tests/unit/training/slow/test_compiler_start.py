"""The first training on a machine finds the compiler's headers made; where nothing is to be made no process starts."""

import dataclasses
import os
import shutil
import subprocess
import sys

import pytest

import tiny
from bertline.training import environment as compiler_start
from bertline.training.environment import start_compiler

RUNTIME = tiny.runtime(compile="auto")
TRAINING = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU())
with torch.autocast("cpu", dtype=torch.bfloat16):
    torch.compile(model, dynamic=False)(torch.ones(32, 64)).sum().backward()
"""


@pytest.fixture
def no_headers(monkeypatch, tmp_path):
    """Two cores, a compiler, no NVIDIA driver, and a folder without headers."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setattr(compiler_start.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(compiler_start, "_NVIDIA_DRIVER", tmp_path / "no driver")
    monkeypatch.setattr(compiler_start.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


@pytest.fixture
def started(monkeypatch):
    """The commands of the processes that would be started."""
    commands = []

    class Process:
        def __init__(self, command, **options):
            commands.append(command[-1])

        def wait(self):
            return 0

    monkeypatch.setattr(subprocess, "Popen", Process)
    return commands


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("g++") is None, reason="compiles with g++ on Linux")
def test_training_uses_the_headers_that_were_made_at_its_start(no_headers):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCHINDUCTOR_")}
    environment["TMPDIR"] = str(no_headers)

    def headers():
        return {path: path.stat().st_mtime_ns for path in no_headers.glob("torchinductor_*/precompiled_headers/*.gch")}

    assert start_compiler(RUNTIME, environment).wait(timeout=600) == 0
    made = headers()
    assert len(made) == 1
    subprocess.run([sys.executable, "-c", TRAINING], env=environment, check=True, timeout=600)
    assert headers() == made
    assert start_compiler(RUNTIME, environment) is None


def test_with_device_auto_the_process_compiles_nothing_beside_an_accelerator(no_headers, started):
    for device in ("cpu", "auto"):
        assert start_compiler(dataclasses.replace(RUNTIME, device=device), {}) is not None
    on_cpu, on_any = started
    assert "accelerator" not in on_cpu
    assert on_any.startswith("import torch; torch.accelerator.is_available() or torch.compile")


@pytest.mark.parametrize(
    ("changes", "variables"),
    [({"compile": "off"}, {}), ({"device": "cuda"}, {}), ({"device": "mps"}, {}), ({}, {"LOCAL_RANK": "1"})],
)
def test_no_process_starts_for_a_training_that_does_not_compile_on_the_cpu(no_headers, started, changes, variables):
    assert start_compiler(dataclasses.replace(RUNTIME, **changes), variables) is None
    assert not started


@pytest.mark.parametrize(
    "lacking", ["a second core", "a compiler", "Linux", "a GPU driver's absence", "headers' absence"]
)
def test_no_process_starts_on_a_machine_that_does_not_want_it(no_headers, started, monkeypatch, lacking):
    runtime = dataclasses.replace(RUNTIME, device="auto")
    assert start_compiler(runtime, {}) is not None  # with all of it
    match lacking:
        case "a second core":
            monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
        case "a compiler":
            monkeypatch.setattr(compiler_start.shutil, "which", lambda name: None)
        case "Linux":
            monkeypatch.setattr(sys, "platform", "darwin")
        case "a GPU driver's absence":
            (no_headers / "no driver").mkdir()
        case "headers' absence":
            folder = no_headers / "torchinductor_somebody" / "precompiled_headers"
            folder.mkdir(parents=True)
            (folder / "x.h.gch").touch()
    assert start_compiler(runtime, {}) is None
    assert len(started) == 1


def test_a_training_does_without_the_process_where_none_can_be_started(no_headers, monkeypatch):
    def refuse(*command, **options):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert start_compiler(RUNTIME, {}) is None
