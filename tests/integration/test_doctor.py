"""`pipelines/doctor.py` as people start it: alone, with ranks of its own, under torchrun and as tasks of srun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import warm_python
from ports import free_port
from terminal import coloured_on_terminal

ROOT = Path(__file__).resolve().parents[2]
DOCTOR = ROOT / "pipelines/doctor.py"


def warm():
    """For tests of what is printed: that the doctor imports all it needs is known from those of what it finds."""
    return str(warm_python.programs() / "python")


@pytest.fixture
def places(tmp_path):
    """Overrides that keep the doctor away from the runs of this repository."""
    runs = tmp_path / "runs"
    return [
        f"runtime.runs_folder={runs}",
        f"tracking.uri=sqlite:///{runs}/mlflow.db",
        f"tracking.studies_url=sqlite:///{runs}/studies.db",
    ]


def environment(**more):
    launched = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "BERTLINE_STUDIES_URL")
    kept = {name: value for name, value in os.environ.items() if name not in launched and not name.startswith("SLURM")}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **more}


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, env=environment(**more), timeout=600)


def lines_of(done):
    report = json.loads(done.stdout)
    return report, {one["check"]: one for one in report["findings"]}


def test_alone_the_machine_is_examined_and_nothing_is_left(places, tmp_path):
    done = run(sys.executable, DOCTOR, *places, "--json")
    report, lines = lines_of(done)
    red = {name: one["found"] for name, one in lines.items() if one["status"] == "red"}
    assert (done.returncode, red, report["ok"], report["num_ranks"]) == (0, {}, True, 1), done.stderr
    assert lines["all-reduce"]["status"] == "unused"
    for name in ("Python", "PyTorch", "compiler", "device", "open files", "shared memory", "memory: phase 1", "cores"):
        assert name in lines
    for folder in ("runs", "cache"):
        for part in ("space", "lock", "rename", "speed"):
            assert lines[f"{folder}: {part}"]["status"] in ("green", "note")
    assert list(tmp_path.rglob("*")) == []


def test_as_many_ranks_as_the_configuration_has_are_started_and_sum_correctly(places):
    done = run(sys.executable, DOCTOR, *places, "runtime.num_devices=2", "--json")
    report, lines = lines_of(done)
    assert (done.returncode, report["num_ranks"]) == (0, 2), done.stdout + done.stderr
    assert lines["ranks"]["status"] == "green"
    assert lines["all-reduce"]["measured"]["bytes_per_s"] > 1e6
    assert "correct over 2 ranks with gloo" in lines["all-reduce"]["found"]
    assert abs(lines["clocks"]["measured"]["offset_s"]) < 0.5  # the same clock
    assert lines["device"]["ranks"] == [0, 1]


def test_ranks_of_torchrun_print_one_table_that_fits_its_width(places):
    done = run(
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", DOCTOR, *places,
        "runtime.num_devices=2",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("doctor on ") == 1
    assert "correct over 2 ranks" in done.stdout
    assert "\033" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 100


def test_tasks_of_srun_on_two_nodes_compare_their_folders_and_one_red_line_is_the_exit_status(places):
    port = str(free_port())
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2", "MASTER_PORT": port}
    step |= {"SLURM_STEP_NODELIST": "localhost", "SLURM_LOCALID": "0", "PATH": f"{Path(sys.executable).parent}:/bin"}
    arguments = [sys.executable, DOCTOR, *places, "runtime.num_nodes=2", "tracking.uri=http://127.0.0.1:9", "--json"]
    tasks = [
        subprocess.Popen(
            arguments,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(**step, SLURM_PROCID=str(task), SLURMD_NODENAME=f"node{task + 1}"),
        )
        for task in range(2)
    ]
    outputs = [task.communicate(timeout=600)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [1, 0]
    assert outputs[1] == ""
    report = json.loads(outputs[0])
    lines = {one["check"]: one for one in report["findings"]}
    assert report["hosts"] == ["node1", "node2"]
    assert lines["Python"]["ranks"] == [0, 1]
    assert lines["ranks"]["found"] == "2 on 2 host(s): node1 (1), node2 (1)"
    for folder in ("runs", "cache"):
        assert lines[f"{folder}: other nodes"]["status"] == "green"
        assert lines[f"{folder}: lock of other nodes"]["status"] == "green"
    assert lines["MLflow"]["status"] == "red"
    assert lines["Slurm"]["status"] == "red"  # a job, and its commands are not on this path


def test_a_rank_that_never_comes_is_red_and_nothing_waits_for_it(places):
    done = run(
        sys.executable, "-c", IMPATIENT, *places, "--json",
        RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    _, lines = lines_of(done)
    assert lines["ranks"]["status"] == "red"
    assert "1 of 2 reported; missing: 1" in lines["ranks"]["found"]


def test_a_rank_that_cannot_reach_the_first_says_so(places):
    done = run(
        sys.executable, "-c", IMPATIENT, *places,
        RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "rank 1 on" in done.stderr
    assert "cannot reach rank 0 at 127.0.0.1" in done.stderr


def test_on_a_terminal_the_table_has_its_width_and_colours(places):
    status, text = coloured_on_terminal(80, [warm(), str(DOCTOR), *places], environment=environment())
    assert status == 0
    assert "   \033[32mok\033[0m Python" in text
    plain = text.replace("\033[0m", "").replace("\033[32m", "").replace("\033[33m", "").replace("\033[2m", "")
    assert "\033" not in plain
    assert max(len(line) for line in plain.splitlines()) <= 80


@pytest.mark.parametrize("unwanted", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "TERM"])
def test_on_a_terminal_that_wants_no_colours_there_are_none(places, unwanted):
    command = [warm(), str(DOCTOR), *places]
    status, text = coloured_on_terminal(80, command, environment=environment(), **unwanted)
    assert (status, "\033" in text) == (0, False)
    assert "   ok Python" in text


def test_without_a_terminal_the_table_has_100_columns_and_no_colours(places):
    done = run(warm(), DOCTOR, *places, COLUMNS="40")
    assert (done.returncode, "\033" in done.stdout) == (0, False)
    assert 80 < max(len(line) for line in done.stdout.splitlines()) <= 100


def test_a_mistyped_key_is_explained(places):
    done = run(warm(), DOCTOR, "runtime.num_device=2")
    assert done.returncode == 1
    assert "runtime.num_devices" in done.stderr


def test_make_installs_first_but_not_in_each_task_of_a_step():
    def planned(**more):
        done = run("make", "--dry-run", "--always-make", "-C", ROOT, "doctor", "ARGS=--json", **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    alone, task = planned(), planned(SLURM_STEP_NUM_TASKS="16")
    assert ("pip install" in alone, "pip install" in task) == (True, False)
    assert "pipelines/doctor.py --json" in task


# The doctor with 3 s instead of 40 for the ranks to meet.
IMPATIENT = f"""
import runpy, sys
sys.argv[0] = {str(DOCTOR)!r}
sys.path.insert(0, {str(DOCTOR.parent)!r})
import bertline.doctor.together as together
together._MEET_S = 3.0
runpy.run_path(sys.argv[0], run_name="__main__")
"""
