"""All tests, part by part, with a record of what came out: `make test-all`.

    python full_run.py            # runs the parts and writes tests/last_full_run.json, whatever fails
    python full_run.py --age      # how many commits ago that was: `.ci/run`

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
COUNTS = ("passed", "failed", "skipped")
# The record itself is no change: it is committed after its run.
_BUT_RECORD = ("--", ".", f":!{RECORD.relative_to(ROOT)}")


def git(*command: str) -> str:
    """What a git command prints in the repository."""
    return subprocess.run(["git", *command], cwd=ROOT, check=True, text=True, capture_output=True).stdout.strip()


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
    return dict(zip(COUNTS, (tests - failures - errors - skipped, failures + errors, skipped), strict=True))


def recorded(commit: str, parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The record of a run: sums over the parts, and the parts."""
    sums = {name: sum(part.get(name, 0) for part in parts.values()) for name in (*COUNTS, "seconds")}
    unfinished = [name for name, part in parts.items() if not {*COUNTS} <= {*part}]
    more = {"unfinished": unfinished} if unfinished else {}
    return {"commit": commit, "date": datetime.now(UTC).strftime("%Y-%m-%d"), **sums, **more, "parts": parts}


def age() -> str:
    """The line about the last full run."""
    if not RECORD.exists():
        return "make test-all: no record (tests/last_full_run.json)"
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    try:
        since = f"{found['commit'].rstrip('+')}..HEAD"
        commits = f"{git('rev-list', '--count', since, *_BUT_RECORD)} commits ago"
    except subprocess.CalledProcessError:  # a shallow clone
        commits = "at a commit that is not here"
    counts = ", ".join(f"{found[name]:,} {name}" for name in COUNTS)
    unfinished = "".join(f", {name} did not finish" for name in found.get("unfinished", ()))
    return f"make test-all: {commits} ({found['commit'][:8]}, {found['date']}): {counts}{unfinished}"


def main() -> int:
    """Run all parts, write the record, and return 1 if one of them failed."""
    if "--age" in sys.argv:
        print(age())
        return 0
    changes = git("status", "--porcelain", "--untracked-files=no", *_BUT_RECORD)
    commit, parts = git("rev-parse", "HEAD") + "+" * bool(changes), {}
    for part in PARTS:  # written after each, in case the next one never ends
        parts[part] = run_part(part)
        RECORD.write_text(json.dumps(recorded(commit, parts), indent=2) + "\n", encoding="utf-8")
    print(age())
    return int(any(part["exit_status"] for part in parts.values()))


if __name__ == "__main__":
    sys.exit(main())
