"""Outputs that grow: what a stopped call leaves, and what the next one makes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

WORDS = ("cat", "dog", "mat", "the cat sat on the mat", "a dog", "the", "cafe.", "sat")


# A recipe that waits before its last block, so that it does not end before it is killed.
HELD = """
import runpy, sys, time
from pathlib import Path
from bertline.inference.growing_file import GrowingFile
append, num_rows = GrowingFile.append, int(sys.argv[1])

def held(growing, rows, **named):
    if growing.progress.num_rows + len(rows) >= num_rows:
        time.sleep(600)
    append(growing, rows, **named)

GrowingFile.append = held
sys.argv = sys.argv[2:]
runpy.run_module("bertline", run_name="__main__")
"""


def test_a_killed_command_continues(classifier_folder: Path, tmp_path: Path) -> None:
    num_rows = 30_000
    (tmp_path / "in.txt").write_text("".join(f"{WORDS[n % len(WORDS)]} {n}\n" for n in range(num_rows)))
    command = ["bertline", "predict", f"model_folder={classifier_folder}", "input=in.txt", "output=out.jsonl"]
    held = [sys.executable, "-c", HELD, str(num_rows), *command]
    first = subprocess.Popen(held, cwd=tmp_path, stdout=subprocess.DEVNULL)
    progress = tmp_path / "out.jsonl.progress"
    deadline = time.monotonic() + 600
    while not progress.exists() and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    in_place = json.loads(progress.read_text())["num_rows"]
    assert 0 < in_place < num_rows
    second = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"{in_place:,} rows are in place from an earlier start" in second.stdout
    rows = [json.loads(line)["text"] for line in (tmp_path / "out.jsonl").open()]
    assert rows == (tmp_path / "in.txt").read_text().splitlines()
