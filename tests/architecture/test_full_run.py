"""The record of `make test-all`: commit, counts and seconds of all parts, whatever fails."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import full_run

JUNIT = '<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10"/></testsuites>'


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of its own; git answers as in a clean working tree at the commit abc."""
    (tmp_path / "tests").mkdir()
    monkeypatch.setattr(full_run, "RECORD", tmp_path / "tests/last_full_run.json")
    answers = {"rev-parse": "abc", "status": "", "rev-list": "4"}
    monkeypatch.setattr(full_run, "git", lambda command, *rest: answers[command])
    monkeypatch.setattr("sys.argv", ["full_run.py"])
    return tmp_path


def test_a_run_with_failures_is_recorded_to_its_end(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(command: list[str], env: dict[str, str], **_: object) -> SimpleNamespace:
        if command == ["make", "test-slurm"]:  # ends before pytest does
            return SimpleNamespace(returncode=2)
        Path(env["PYTEST_ADDOPTS"].rpartition("--junitxml=")[2]).write_text(JUNIT)
        return SimpleNamespace(returncode=int(command == ["make", "test-main"]))

    monkeypatch.setattr(subprocess, "run", make)
    assert full_run.main() == 1
    record = json.loads(full_run.RECORD.read_text())
    assert [record[name] for name in ("commit", "passed", "failed", "skipped")] == ["abc", 8, 6, 6]
    assert record["unfinished"] == ["slurm"]
    assert {name: part["exit_status"] for name, part in record["parts"].items()} == {
        "main": 1,
        "browser": 0,
        "slurm": 2,
    }
    assert record["seconds"] == sum(part["seconds"] for part in record["parts"].values())
    assert "4 commits ago (abc, " in (said := capsys.readouterr().out)
    assert said.endswith("): 8 passed, 6 failed, 6 skipped, slurm did not finish\n")


def test_without_a_record_that_is_said(repository: Path) -> None:
    assert full_run.age() == "make test-all: no record (tests/last_full_run.json)"


def test_the_parts_are_targets_of_the_makefile() -> None:
    makefile = (full_run.ROOT / "Makefile").read_text()
    assert all(f"\ntest-{part}: " in makefile for part in full_run.PARTS)
