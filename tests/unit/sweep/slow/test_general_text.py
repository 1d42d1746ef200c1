"""What benchmarks/general_text.py says of scores and recipes, and how processor time is summed over processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[4] / "benchmarks"))

import processor_time
from processor_time import ProcessorTime

BUSY = "import time\nwhile time.process_time() < 0.5: pass\nprint('used', flush=True)\ntime.sleep(600)"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs proc(5)")
def test_processor_time_counts_children_and_earlier_starts_and_nothing_else(tmp_path: Path) -> None:
    kept = tmp_path / "processor_time.json"
    kept.write_text(json.dumps({"1-1": 5.0}))
    nested = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])\n"
    with (
        subprocess.Popen([sys.executable, "-c", nested, "meant"], cwd=tmp_path, stdout=subprocess.PIPE) as meant,
        subprocess.Popen([sys.executable, "-c", BUSY, "other"], cwd=tmp_path, stdout=subprocess.PIPE) as other,
    ):
        try:
            assert meant.stdout is not None and other.stdout is not None
            meant.stdout.readline()
            other.stdout.readline()
            times = ProcessorTime(kept, folder=tmp_path, named="meant")
            times.sample()
            assert 5.3 <= times.seconds < 60
            assert ProcessorTime(kept, folder=tmp_path, named="meant").seconds == times.seconds
            assert ProcessorTime(tmp_path / "none.json", folder=Path(os.sep), named="meant").seconds == 0
            times.sample()
            assert len(json.loads(kept.read_text())) == 2
        finally:
            children = [one.pid for one in processor_time.running() if one.parent == meant.pid]
            for pid in (*children, meant.pid, other.pid):
                os.kill(pid, 9)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs proc(5)")
def test_a_sampler_looks_while_its_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "_EVERY_S", 0.05)
    with (
        subprocess.Popen([sys.executable, "-c", BUSY, "meant"], cwd=tmp_path, stdout=subprocess.PIPE) as process,
        ProcessorTime(tmp_path / "times.json", folder=tmp_path, named="meant") as times,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        end = time.monotonic() + 600
        while times.seconds < 0.2 and time.monotonic() < end:
            time.sleep(0.05)
        process.kill()
    assert times.seconds >= 0.2
