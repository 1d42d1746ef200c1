"""`bertline doctor` as people start it: alone, and under torchrun and srun."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DOCTOR = ("-m", "bertline", "doctor")
# The doctor whose ranks wait 6 s for one another instead of 120.
IMPATIENT = """
import runpy, sys
sys.argv[:1] = ["bertline", "doctor"]
from bertline import doctor
from bertline.training import process_group as group
doctor._PEER_TIMEOUT_S, group._LEAST_JOIN_S = 6.0, 3.0
runpy.run_module("bertline", run_name="__main__")
"""
# The doctor of a rank whose part of a sum changes on its way.
WRONG = """
import torch.distributed as dist
whole = dist.all_reduce
def broken(tensor, *args, **kwargs):
    if tensor.dim() == 2 and dist.get_rank() == 1:
        tensor[1, 7] += 1
    return whole(tensor, *args, **kwargs)
dist.all_reduce = broken
"""


@pytest.fixture
def places(tmp_path):
    """Overrides that keep the doctor away from the runs of this repository."""
    runs = tmp_path / "runs"
    stores = [f"tracking.uri=sqlite:///{runs}/mlflow.db", f"tracking.studies_url=sqlite:///{runs}/studies.db"]
    return [f"runtime.runs_folder={runs}", "runtime.device=cpu", *stores]


def environment(**more):
    launched = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "BERTLINE_STUDIES_URL")
    kept = {name: value for name, value in os.environ.items() if name not in launched and not name.startswith("SLURM")}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **more}


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, env=environment(**more), timeout=600)


def together(code, *arguments, **more):
    """Exit status, output and errors of two ranks; `more` is in the environment of both."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **more}
    ranks = [
        subprocess.Popen(
            [sys.executable, *code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(**shared, RANK=str(rank), LOCAL_RANK=str(rank), SLURMD_NODENAME=f"node{rank + 1}"),
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [rank.communicate(timeout=600) for rank in ranks]
    return [(rank.returncode, *output) for rank, output in zip(ranks, outputs, strict=True)]


def findings(text):
    """What was found, by check: `ok ` or `RED`, and the sentence."""
    return {check: (mark, found) for mark, check, found in re.findall(r"^(ok |RED) (\S+) +(.*)$", text, re.MULTILINE)}


def test_two_ranks_of_torchrun_sum_correctly_and_the_first_prints_all(places):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = run(*launcher, *DOCTOR, *places, "runtime.num_devices=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Nothing is red") == 1
    assert "all-reduce  correct over 2 ranks with gloo" in done.stdout


def test_tasks_of_srun_say_what_is_red_on_them_and_that_is_the_exit_status(places):
    crowded = ["experiment=bert_large"]  # too much for the memory of a machine without a GPU
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "2", "PATH": f"{Path(sys.executable).parent}:/bin"}
    first, second = together(DOCTOR, *places, "runtime.num_nodes=2", *crowded, **step)
    assert (first[0], second[0], second[1]) == (1, 1, "")
    lines = findings(first[1])
    assert [check for check, (mark, _) in lines.items() if mark == "RED"] == ["memory", "Slurm"]  # no commands of Slurm
    assert second[2].startswith("rank 1 (node2): RED memory")
    assert "correct over 2 ranks" in lines["all-reduce"][1]


def test_the_rank_that_adds_wrongly_is_named_and_so_is_another_number_of_ranks(places):
    first, second = together(["-c", WRONG + IMPATIENT], *places, "runtime.num_nodes=2")
    mark, found = findings(first[1])["all-reduce"]
    assert (first[0], second[0], mark) == (1, 1, "RED")
    assert ("by the part of rank 1 (node2)" in found, "take its node out" in first[1]) == (True, True)
    first, _ = together(DOCTOR, *places)
    assert (first[0], "need 1 processes, but 2 are running" in first[2]) == (1, True)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_whose_peer_never_comes_is_red_in_time(places, rank):
    alone = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}
    done = run(sys.executable, "-c", IMPATIENT, *places, "runtime.num_devices=2", **alone, MASTER_PORT=str(free_port()))
    assert done.returncode == 1
    said = f"rank {rank} could not join all 2 ranks"
    assert said in (done.stdout if rank == 0 else done.stderr)
