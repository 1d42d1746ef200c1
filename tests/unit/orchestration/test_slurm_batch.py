"""What a job of Slurm does itself, with stand-ins for Slurm's commands: start, wait, count its starts, give up."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tiny
from bertline.orchestration.ownership import hold_lock
from bertline.orchestration.slurm import batch
from bertline.orchestration.status import Status, read_status, write_status
from bertline.training.launchers import LocalLauncherConfig
from slurm_programs import launcher, says

WORK = "bertline.pretraining.run:run"


@pytest.fixture
def job_on_one_node(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run folder of a job with one node and two tasks on it, whose srun only says that it was called."""
    says(programs, "scontrol", "JobId=7 JobState=COMPLETING NodeAddr=127.0.0.1")
    (programs / "srun").write_text(f"#!/bin/sh\ntouch {tmp_path}/srun\n")
    (programs / "srun").chmod(0o755)
    of_slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS_PER_NODE": "2", "SLURMD_NODENAME": "a"}
    for name, value in of_slurm.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(batch.signal, "signal", lambda number, handler: None)  # of pytest
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("{config: {}, stage: pretrain}")
    return folder


def opened_with(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """As if the last command on the run folder had this runtime section."""
    section = tiny.runtime(**{"launcher": launcher(), **changes})
    monkeypatch.setattr(batch, "pipeline_config", lambda _: SimpleNamespace(runtime=section))


def test_a_job_that_is_too_small_for_a_newer_configuration_says_so_and_fails(
    job_on_one_node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_with(monkeypatch, num_nodes=2, num_devices=2)
    assert batch.main(job_on_one_node, WORK) == 1
    status = read_status(job_on_one_node)
    assert status.state == "failed"
    assert "job 7 was submitted for 1 node(s) of 2 device(s)" in status.message
    assert "runtime.num_nodes=2 and runtime.num_devices=2. Run it once more" in status.message
    assert not (job_on_one_node.parent / "srun").exists()
    write_status(job_on_one_node, Status(state="new"))  # as a client does before it submits again
    opened_with(monkeypatch, num_nodes=1, num_devices=1)
    assert batch.main(job_on_one_node, WORK) == 85  # it worked, and was not finished
    assert (job_on_one_node.parent / "srun").exists()


def test_a_job_ends_if_its_run_was_opened_to_work_locally_since(
    job_on_one_node: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened_with(monkeypatch, launcher=LocalLauncherConfig(kind="local"))
    assert batch.main(job_on_one_node, WORK) == 1
    assert "was opened with runtime/launcher=local after job 7 was submitted" in capsys.readouterr().err
    assert read_status(job_on_one_node).state == "new"  # that of the local worker stays as it is
    assert not (job_on_one_node.parent / "srun").exists()


def test_a_task_is_judged_by_what_it_has_done_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    for _ in range(2):
        assert batch._may_start(tmp_path, "7_1", 1)
        with (tmp_path / "events.jsonl").open("a") as handle:
            handle.write("{}\n")  # another task has made progress
    assert not batch._may_start(tmp_path, "7_1", 1)
    (tmp_path / "1.done").write_text(".")
    assert batch._may_start(tmp_path, "7_1", 1)


@pytest.mark.parametrize(("queue", "state"), [("7_0|RUNNING\n7_1|RUNNING", "new"), ("7_1|RUNNING", "failed")])
def test_a_task_without_progress_fails_the_sweep_only_if_it_is_the_last(
    job_on_one_node: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, queue: str, state: str
) -> None:
    opened_with(monkeypatch, launcher=launcher(sweep_tasks=2, max_requeues=0))
    monkeypatch.setattr(batch, "stage_named", lambda _: SimpleNamespace(on_several_devices=False))
    for name, value in {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}.items():
        monkeypatch.setenv(name, value)
    says(programs, "squeue", queue)
    assert batch._may_start(job_on_one_node, "7_1", 0)
    assert batch.main(job_on_one_node, WORK) == 1
    assert read_status(job_on_one_node).state == state


@pytest.mark.parametrize("asks", ["signal", "time limit"])
def test_a_job_that_has_to_stop_while_an_earlier_start_works_is_put_back(
    job_on_one_node: Path, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(batch.signal, "signal", lambda number, handler: handlers.update({number: handler}))
    monkeypatch.setattr(batch, "_LOOK_S", 0.05)
    monkeypatch.setattr(batch, "_requeued", lambda job: 85)
    opened_with(monkeypatch, num_nodes=1, num_devices=1)
    if asks == "time limit":
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(time.time() + 120.5))
    with hold_lock(job_on_one_node):
        if asks == "signal":
            monkeypatch.setattr(batch, "warn", lambda _: handlers[signal.SIGTERM](signal.SIGTERM, None))  # as it waits
        assert batch.main(job_on_one_node, WORK) == 85
    assert not (job_on_one_node.parent / "srun").exists()
    assert not (job_on_one_node / "starts.jsonl").exists()  # it was no start without progress
