"""`make test-changed`, run in a clone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from changed_tests import ROOT


def test_make_test_changed_runs_the_tests_of_what_changed_and_no_others(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    for name in ("Makefile", "tests/support/changed_tests.py"):  # as they stand, also before they are committed
        shutil.copy2(ROOT / name, clone / name)
    changed = clone / "src/bertline/tokenization/words.py"
    changed.write_text(changed.read_text() + "\nUNUSED = 1\n")
    variables = ("BASE=HEAD", f"BIN={Path(sys.executable).parent}", "PYTEST=echo")
    command = ["make", "--old-file=install-dev", "--silent", *variables, "test-changed"]
    done = subprocess.run(command, cwd=clone, text=True, capture_output=True, check=True)
    tests = {word for word in done.stdout.split() if word.startswith("tests/")}
    assert "tests/unit/tokenization/test_wordpiece.py" in tests
    assert "tests/unit/training/test_schedules.py" not in tests and not any("slow" in name for name in tests)
