"""What is said of DVC's locks, with real processes behind them."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertline.cli.dvc_lock_hint import dvc_lock_hint


@pytest.fixture
def dvc() -> Iterator[int]:
    """Number of a running process that looks like DVC."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "dvc", "repro"]) as process:
        yield process.pid
        process.kill()


def locked_by(root: Path, pid: int, stage: str = "sweep@docs_match") -> None:
    holder = {"pid": pid, "cmd": "/x/bin/dvc repro"}
    (root / ".dvc/tmp").mkdir(parents=True)
    content = {
        "write": {"/x/artifacts/sweep/docs_match": holder, f"/x/artifacts/metrics/{stage}.json": holder},
        "read": {"/x/artifacts/code/sweep": [holder]},
    }
    (root / ".dvc/tmp/rwlock").write_text(json.dumps(content))


def test_a_free_project_has_nothing_to_explain(tmp_path: Path) -> None:
    assert dvc_lock_hint(tmp_path) is None
    (tmp_path / ".dvc/tmp").mkdir(parents=True)
    (tmp_path / ".dvc/tmp/rwlock").write_text("{}")
    (tmp_path / ".dvc/tmp/lock").write_text(" 1\\n")  # names the last process that held it
    assert dvc_lock_hint(tmp_path) is None


def test_a_running_stage_is_named(tmp_path: Path, dvc: int) -> None:
    locked_by(tmp_path, dvc)
    said = dvc_lock_hint(tmp_path) or ""
    assert f"process {dvc} (dvc, for " in said
    assert "is at stage sweep@docs_match" in said
    assert "Do not delete .dvc/tmp/rwlock" in said


def test_the_lock_of_a_killed_process_is_told_from_that_of_a_running_one(tmp_path: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    locked_by(tmp_path, done.pid)
    said = dvc_lock_hint(tmp_path) or ""
    assert f"process {done.pid} (/x/bin/dvc repro) was killed and left its lock behind" in said
    assert "Do not delete" not in said


@pytest.mark.parametrize("words", [[], ["/home/ada/dvc-bert/train.py", "dvc.yaml"]], ids=["plain", "dvc in a path"])
def test_another_program_with_the_number_of_a_killed_one_is_no_holder(tmp_path: Path, words: list[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *words]) as other:
        locked_by(tmp_path, other.pid)
        assert "was killed and left its lock behind" in (dvc_lock_hint(tmp_path) or "")
        other.kill()


def test_a_command_that_is_writing_takes_seconds(tmp_path: Path) -> None:
    (tmp_path / ".dvc/tmp").mkdir(parents=True)
    with (tmp_path / ".dvc/tmp/lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert "takes seconds" in (dvc_lock_hint(tmp_path) or "")
