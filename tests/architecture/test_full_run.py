"""The record of `make test-all`: commit, counts and seconds of all parts, whatever fails."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import full_run

JUNIT = '<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10"/></testsuites>'


def test_a_run_with_failures_is_recorded_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(command: list[str], env: dict[str, str], **_: object) -> SimpleNamespace:
        if command == ["make", "test-slurm"]:  # ends before pytest does
            return SimpleNamespace(returncode=2)
        Path(env["PYTEST_ADDOPTS"].rpartition("--junitxml=")[2]).write_text(JUNIT)
        return SimpleNamespace(returncode=int(command == ["make", "test-main"]))

    monkeypatch.setattr(full_run, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(subprocess, "run", make)
    assert full_run.main("abc") == 1
    record = json.loads(full_run.RECORD.read_text())
    assert [record[name] for name in ("commit", "passed", "failed", "skipped")] == ["abc", 8, 6, 6]
    assert [record["parts"][part]["exit_status"] for part in full_run.PARTS] == [1, 0, 2]


def test_the_parts_are_targets_of_the_makefile() -> None:
    makefile = (full_run.ROOT / "Makefile").read_text()
    assert all(f"\ntest-{part}: " in makefile for part in full_run.PARTS)
