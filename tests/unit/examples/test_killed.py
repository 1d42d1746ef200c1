"""The stages corpus, tokenizer and examples, killed at random moments, resume to the bytes of an undisturbed run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bertline.foundation.files import sha256_of_path

# Each run is a fork of a process that has imported everything. The alarm kills it wherever it is.
RUNS = """
import os, pathlib, random, signal, sys, time
from bertline.foundation.engine import LocalEngine
from staged_runs import write_stages

def run(folder, dies_after_s):
    if not (child := os.fork()):
        signal.setitimer(signal.ITIMER_REAL, dies_after_s)
        write_stages(folder, LocalEngine(0))
        os._exit(0)
    return os.waitpid(child, 0)[1]

folder, started = pathlib.Path(sys.argv[1]), time.monotonic()
assert run(folder / "undisturbed", 0) == 0
took_s = time.monotonic() - started
killed = [run(folder / "killed", random.uniform(0.1, 0.5) * took_s) for _ in range(6)]
assert signal.SIGALRM in killed and run(folder / "killed", 0) == 0
"""


def test_killed_stages_resume_to_the_same_bytes_and_leave_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", RUNS, str(tmp_path)], env=environment, check=True, timeout=600)
    for name in ("corpus", "tokenizer", "examples"):
        assert sha256_of_path(tmp_path / "killed" / name) == sha256_of_path(tmp_path / "undisturbed" / name)
    left = [
        {path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*")}
        for name in ("killed", "undisturbed")
    ]
    assert left[0] == left[1]
