"""All tests, part by part: `make test-all`, which writes tests/last_full_run.json whatever fails.

`make test` and `.ci/run` leave out what takes long; the record says when it last ran, and how that ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "tests" / "last_full_run.json"
PARTS = ("main", "browser", "slurm")
"""Targets of the Makefile: `make test-main`."""


def run_part(part: str) -> dict[str, Any]:
    """Run a part; return its counts, exit status and seconds. A part that ends before its tests do has no counts."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "junit.xml"
        options = f"{os.environ.get('PYTEST_ADDOPTS', '')} --junitxml={told}"
        done = subprocess.run(["make", f"test-{part}"], cwd=ROOT, env={**os.environ, "PYTEST_ADDOPTS": options})
        counts = counts_of(told.read_text(encoding="utf-8")) if told.exists() else {}
    return {**counts, "exit_status": done.returncode, "seconds": round(time.monotonic() - started)}


def counts_of(junit: str) -> dict[str, int]:
    """The counts in pytest's report; errors outside of a test count as failures."""
    (suite,) = ElementTree.fromstring(junit).iter("testsuite")
    tests, failures, errors, skipped = (int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped"))
    return {"passed": tests - failures - errors - skipped, "failed": failures + errors, "skipped": skipped}


def main(commit: str) -> int:
    """Run all parts, write the record, and return 1 if one of them failed."""
    parts: dict[str, dict[str, Any]] = {}
    for part in PARTS:  # written after each, in case the next one never ends
        parts[part] = run_part(part)
        sums = {name: sum(one.get(name, 0) for one in parts.values()) for name in ("passed", "failed", "skipped")}
        record = {"commit": commit, "date": f"{datetime.now(UTC):%Y-%m-%d}", **sums, "parts": parts}
        RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return int(any(part["exit_status"] for part in parts.values()))


if __name__ == "__main__":
    sys.exit(main(subprocess.check_output(["git", "describe", "--always", "--dirty=+"], cwd=ROOT, text=True).strip()))
