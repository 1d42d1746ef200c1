"""The end of `make repro`; what is said of DVC's locks has real processes behind it."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertline.cli.repro_end import dvc_lock_hint, finished_pipeline
from bertline.foundation.files import write_json

ROOT = Path(__file__).resolve().parents[3]


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
        "read": {"/x/artifacts/identity/sweep.json": [holder]},
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


def test_a_finished_pipeline_ends_with_a_verdict_on_each_task_and_what_to_open(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("tasks: {library: {}, search: {}, new: {}, alone: {}}")
    encoder = {"encoder": {"test_mean": 0.3333}}
    baselines = {"bm25": {"title": "BM25", "test": 0.52}}
    conclusions = {
        "library": {"opponent": "bm25", "encoder": {"verdict": "better"}},
        "search": {
            "opponent": "bm25",
            "encoder": {"verdict": "worse", "cause": None},
            "combined": {"verdict": "not shown", "cause": "21 test rows are too few"},
        },
        "alone": {"opponent": None},
        "removed": {"opponent": None},
    }
    for task, conclusion in conclusions.items():
        result = {"task": task, "metric": "accuracy", "arms": encoder, "baselines": baselines, "conclusion": conclusion}
        write_json(tmp_path / "artifacts/sweep" / task / "result.json", result)
    lines = [*finished_pipeline(tmp_path)]
    assert lines[1:4] == [
        "  library  wins                        accuracy 0.333 against 0.520  BM25",
        "  search   loses, with BM25 not clear  accuracy 0.333 against 0.520  BM25: 21 test rows are too few",
        "  alone    no verdict                  accuracy 0.333                no simple method was tried",
    ]
    assert "artifacts/evaluate/report.html" in lines[4] and "`make try`" in lines[5] and "`make ui`" in lines[5]


@pytest.mark.parametrize("status", [0, 3])
def test_make_repro_calls_it_with_the_status_of_dvc_which_make_reports(tmp_path: Path, status: int) -> None:
    (tmp_path / "venv/bin").mkdir(parents=True)
    for name, program in (("bertline", "exit 0"), ("dvc", f"exit {status}"), ("python", 'echo "$@"')):
        (tmp_path / "venv/bin" / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "venv/bin" / name).chmod(0o755)
    command = ["make", "--no-print-directory", "-f", ROOT / "Makefile", "-o", "install", "repro", "VENV=venv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == f"-m bertline.cli.repro_end {status}\n"
    assert re.findall(r"Error (\d+)", done.stderr) == ([str(status)] if status else [])
