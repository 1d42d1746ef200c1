"""`bertline plan` as people run it: the figures, the documented page, the errors."""

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


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project without lasting choices; nothing has been run or measured there."""
    return copy_project(tmp_path)


def run(repository: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)


def test_the_present_configuration_is_forecast_and_nothing_is_touched(repository: Path) -> None:
    before = sorted(path for path in repository.rglob("*") if path.is_file())
    arguments = ("experiment=bert_base", "plan.device=a100", "plan.price_per_hour=2", "plan.corpus_tokens=3.3e9")
    done = run(repository, sys.executable, "-m", "bertline", "plan", *arguments)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    content = json.loads((repository / text.splitlines()[-1]).read_text())
    assert content["parameters"] == 110_106_428
    assert content["hours"] == pytest.approx(83.31, abs=0.01)
    assert content["money"] == pytest.approx(166.61, abs=0.02)
    assert (content["fits"], content["precision"]) == (True, "bf16")
    assert max(map(len, text.splitlines())) <= 100
    (shown,) = re.findall(r"```console\n\$ (bertline .*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    command, *lines = shown.splitlines()
    assert command == shlex.join(["bertline", "plan", *arguments])
    assert set(lines) - {"..."} <= set(text.splitlines())
    after = sorted(path for path in repository.rglob("*") if path.is_file())
    written = {path.relative_to(repository) for path in set(after) - set(before)}
    written = {path for path in written if "__pycache__" not in path.parts and path.parts[:2] != ("runs", "hydra")}
    assert [path.parts[:2] for path in written] == [("runs", "plan")]


def test_a_plan_for_a_gpu_starts_without_pytorch(repository: Path) -> None:
    code = "import sys, runpy\nsys.modules['torch'] = None\nsys.argv = ['bertline', 'plan', 'plan.device=a100']\n"
    done = run(repository, sys.executable, "-c", code + "runpy.run_module('bertline', run_name='__main__')")
    assert done.returncode == 0, done.stderr
