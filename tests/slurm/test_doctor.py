"""`make doctor` on a cluster with real daemons: from the login node, as tasks of srun, and as a job."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import warm_python
from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DOCTOR = ("-m", "bertline", "doctor")


@pytest.fixture
def examine(cluster, tmp_path):
    """`examine("srun", "--nodes=2", overrides=[...])`: exit status, and the lines by check, as printed (to a file)."""
    runs = tmp_path / "runs"
    places = [f"runtime.runs_folder={runs}", f"tracking.uri=sqlite:///{runs}/a.db"]
    places += [f"tracking.studies_url=sqlite:///{runs}/b.db", "runtime.device=cpu"]

    def run(*launcher, overrides=(), printed=None):
        # Clusters of other tests have a job of the same number, and with it the same port.
        of_test = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_port())}
        environment = {**cluster.environment(), **of_test}
        python = sys.executable if launcher else str(warm_python.programs() / "python")
        command = [*launcher, python, *DOCTOR, *places, *overrides]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        said = done.stdout if printed is None else printed.read_text()
        lines = re.findall(r"^(ok |RED) (\S+) +(.*)$", said, re.MULTILINE)
        assert lines, done.stderr
        return done.returncode, {check: {"ok": mark == "ok ", "found": found} for mark, check, found in lines}

    return run


def test_the_line_in_a_batch_script_is_a_job(examine, tmp_path):
    # What sbatch itself prints is not the doctor's.
    script, printed = tmp_path / "doctor.sh", tmp_path / "table.txt"
    script.write_text(f'#!/bin/bash\nsrun --cpus-per-task=2 "$@" > {printed}\n')
    step = ("sbatch", "--wait", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", "--output=/dev/null", script)
    # No CPU has the memory for it.
    one_red = ["runtime.num_nodes=2", "experiment=bert_large"]
    status, lines = examine(*step, overrides=one_red, printed=printed)
    assert "correct over 2 ranks with gloo" in lines["all-reduce"]["found"]
    assert [check for check, line in lines.items() if not line["ok"]] == ["memory"]
    assert status == 1  # sbatch and srun pass it on


def test_the_login_node_asks_whether_the_job_would_be_taken(examine):
    submits = ["runtime/launcher=slurm", "runtime.num_nodes=2", "runtime.launcher.gpus=false"]
    status, lines = examine(overrides=submits)
    assert "would take the job" in lines["Slurm"]["found"], lines["Slurm"]
    assert status == 0
    assert "srun --nodes=2" in lines["nodes"]["found"]
    assert "device" not in lines
    status, lines = examine(overrides=[*submits, "runtime.launcher.partition=none"])
    assert (status, lines["Slurm"]["ok"]) == (1, False)
    assert "partition" in lines["Slurm"]["found"]
    status, lines = examine(overrides=[*submits, "runtime.launcher.gpus=true"])  # this cluster has none
    assert (status, "gres" in lines["Slurm"]["found"]) == (1, True)
