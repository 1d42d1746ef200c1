"""`bertline plan` as people run it: the figures and the documented page, without PyTorch."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from projects import copy_project

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/howto/gpu.md"
# `bertline`, where torch is not installed.
WITHOUT_TORCH = "import sys, runpy; sys.modules['torch'] = None; runpy.run_module('bertline', run_name='__main__')"


def files_in(folder: Path) -> set[Path]:
    files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {path for path in files if "__pycache__" not in path.parts and path.parts[:2] != ("runs", "hydra")}


def test_the_documented_plan_is_printed_without_torch_and_nothing_is_touched(tmp_path: Path) -> None:
    repository = copy_project(tmp_path)
    before = files_in(repository)
    (shown,) = re.findall(r"```console\n\$ bertline (.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    command, *lines = shown.splitlines()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    arguments = [sys.executable, "-c", WITHOUT_TORCH, *shlex.split(command)]
    done = subprocess.run(arguments, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert set(lines) - {"..."} <= set(printed)
    assert max(map(len, printed)) <= 100
    content = json.loads((repository / printed[-1]).read_text())
    assert content["parameters"] == 110_106_428
    assert content["hours"] == pytest.approx(83.31, abs=0.01)
    assert content["money"] == pytest.approx(166.61, abs=0.02)
    assert (content["fits"], content["precision"]) == (True, "bf16")
    assert [path.parts[:2] for path in files_in(repository) - before] == [("runs", "plan")]
