"""Two nodes on one machine: the same command twice, with real workers that meet through torchrun."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import pretraining_inputs
import pretraining_processes as processes
import tiny
import warm_python
from bertline.foundation.errors import BertlineError, MachineError
from bertline.foundation.metrics_log import read_metrics
from bertline.orchestration import launching, stage_run
from bertline.orchestration.config import pipeline_config
from bertline.orchestration.launching import run_in_worker
from bertline.orchestration.ownership import hold_lock
from bertline.orchestration.stages import stage_named
from bertline.orchestration.status import Status, read_status, write_status
from bertline.pretraining.job import PretrainJob
from bertline.tracking.record import RECORD_NAME, leave_record
from bertline.training.config import RuntimeConfig
from bertline.training.nodes import this_node
from ports import free_port
from tiny import load_pretraining_model

NODE = """
import json, sys
from pathlib import Path
from bertline.foundation.errors import BertlineError
from bertline.orchestration.launching import run_in_worker
from bertline.training.config import RuntimeConfig
runtime = RuntimeConfig(**json.loads(sys.argv[2]))
work = "bertline.pretraining.run:run"
try:
    print("figures", json.dumps(run_in_worker(Path(sys.argv[1]), work, runtime, several_devices=True)))
except BertlineError as error:
    sys.exit(str(error))
"""
RUNTIME = tiny.runtime_section(num_nodes=2)
WORK = "bertline.pretraining.run:run"
STEPS = 300


def place(rank: int, port: int) -> dict[str, str]:
    return {"NODE_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def place_by_torchrun(rank: int, port: int) -> dict[str, str]:
    """As Kubeflow and SkyPilot do it, with numbers of processes that the configuration overrides."""
    address = {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port)}
    endpoint = {"PET_RDZV_ENDPOINT": f"127.0.0.1:{port}", "PET_RDZV_BACKEND": "c10d"}
    numbers = {"PET_NODE_RANK": str(rank), "PET_NNODES": "2", "PET_NPROC_PER_NODE": "3"}
    # One node is told each way; names without PET_ may be there too, and mean something else.
    return {**numbers, **(address if rank == 0 else endpoint), "NODE_RANK": "0"}


def start_nodes(folder: Path, place: Callable[[int, int], dict[str, str]] = place) -> list[subprocess.Popen[str]]:
    """The same command on each of two nodes; the second comes later, when the first waits already."""
    port = free_port()
    nodes = []
    for rank in range(2):
        command = [str(warm_python.programs() / "python"), "-c", NODE, str(folder), json.dumps(RUNTIME)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **place(rank, port)}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        nodes.append(subprocess.Popen(command, env=environment, **pipes))
        time.sleep(0.5)
    return nodes


def said_by(node: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = node.communicate(timeout=600)
    return node.returncode, output, errors


def frozen_in(folder: Path, composed: Callable[..., dict[str, Any]], *, steps: int) -> dict[str, Any]:
    """Write the inputs of a pretraining on two nodes next to its run folder; returns its configuration."""
    pretraining_inputs.write_inputs(folder.parent)
    phase = f"{{steps: {steps}, max_length: 16, global_batch_size: 8}}"
    config = composed(
        "experiment=smoke",
        "examples.lengths=[16]",
        f"pretrain.phases=[{phase}]",
        "pretrain.linear_probe=null",
        f"pretrain.validate_every_steps={steps}",
        f"pretrain.mask_predictions.every_steps={steps}",
        f"pretrain.checkpoint_every_steps={steps}",  # nothing is saved on the way but by a stop
    )
    config["runtime"] = {**RUNTIME, "progress_every_s": 0.2}
    folder.mkdir()
    inputs = {name: str(folder.parent / name) for name in ("examples", "tokenizer")}
    frozen = {"stage": "pretrain", "task_name": None, "inputs": inputs, "config": config}
    (folder / "config.yaml").write_text(yaml.safe_dump(frozen))
    return config


@pytest.fixture
def pretraining(composed: Callable[..., dict[str, Any]], tmp_path: Path) -> tuple[Path, PretrainJob]:
    """The run folder of a pretraining on two nodes, and the same job for two plain processes elsewhere."""
    folder = tmp_path / "run"
    config = frozen_in(folder, composed, steps=STEPS)
    sections = {name: config[name] for name in ("model", "objective", "optimizer", "schedule", "pretrain")}
    undisturbed = tmp_path / "undisturbed"
    processes.finish(*processes.start_ranks(tmp_path, [undisturbed] * 2, sections))
    return folder, pretraining_inputs.pretrain_job(tmp_path, undisturbed, **sections)


def test_two_nodes_train_together_stop_together_and_go_on_as_if_never_stopped(
    pretraining: tuple[Path, PretrainJob],
) -> None:
    folder, undisturbed = pretraining
    nodes = start_nodes(folder)
    while not any(row.step >= 40 for row in read_metrics(folder / "metrics.jsonl")):
        assert [node.poll() for node in nodes] == [None, None], [said_by(node) for node in nodes]
        time.sleep(0.02)
    nodes[1].send_signal(signal.SIGTERM)  # one of the two, and not the one that saves
    stopped = [said_by(node) for node in nodes]
    newest = read_status(folder).message
    assert [status for status, *_ in stopped] == [1, 1]
    for _, _, errors in stopped:
        assert newest in errors
        assert f"of {STEPS} in" in errors
        assert "run the same command again" in errors
    state = pretraining_inputs.newest_state(_job_in(undisturbed, folder))
    assert f"saved after step {state['step']} of" in newest
    assert 40 <= state["step"] < STEPS

    figures = [said_by(node) for node in start_nodes(folder)]
    assert [status for status, *_ in figures] == [0, 0], figures
    told = [json.loads(output.rpartition("figures ")[2]) for _, output, _ in figures]
    assert told[0] == told[1] == read_status(folder).metrics
    expected, found = (
        load_pretraining_model(place / "result").state_dict() for place in (undisturbed.run_folder, folder)
    )
    for name in expected:
        assert torch.equal(expected[name], found[name]), name
    assert pretraining_inputs.curve(_job_in(undisturbed, folder)) == pretraining_inputs.curve(undisturbed)
    assert "worker" in (folder / "log.node1").read_text()


def test_two_nodes_that_are_told_their_places_by_the_variables_of_torchrun_train_together(
    composed: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    frozen_in(folder, composed, steps=12)
    ended = [said_by(node) for node in start_nodes(folder, place_by_torchrun)]
    assert [status for status, *_ in ended] == [0, 0], ended
    told = [json.loads(output.rpartition("figures ")[2]) for _, output, _ in ended]
    assert told[0] == told[1] == read_status(folder).metrics
    assert (folder / "result/model.safetensors").exists()
    assert max(row.step for row in read_metrics(folder / "metrics.jsonl")) == 12
    assert (folder / "log.node1").read_text().count("worker ") == 1  # one device, not PET_NPROC_PER_NODE


def _job_in(job: PretrainJob, folder: Path) -> PretrainJob:
    return dataclasses.replace(job, run_folder=folder)


def use(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(launching, "_command", lambda folder, *_: [sys.executable, "-c", script, str(folder)])
    for name, value in place(1, 29500).items():
        monkeypatch.setenv(name, value)


def test_another_node_starts_its_ranks_although_the_first_one_is_at_work_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "import sys, pathlib; (pathlib.Path(sys.argv[1]) / 'started').touch()")
    write_status(tmp_path, Status(state="running", pid=1))

    def finish(folder: Path, *rest: Any) -> int:
        exit_status = start(folder, *rest)
        write_status(folder, Status(state="finished", metrics={"val/mlm_loss": 4.0}))
        return exit_status

    start = launching._start
    monkeypatch.setattr(launching, "_start", finish)
    with hold_lock(tmp_path):  # as the first rank does, in its process
        assert run_in_worker(tmp_path, WORK, RuntimeConfig(**RUNTIME), several_devices=True) == {"val/mlm_loss": 4.0}
    assert (tmp_path / "started").exists()
    assert not (tmp_path / "log").exists()  # two machines that append to one file overwrite each other


def test_a_status_from_before_is_not_taken_for_the_end_of_this_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "import sys; sys.exit(3)")
    monkeypatch.setattr(launching, "_FILE_SYSTEM_LAG_S", 0.1)
    write_status(tmp_path, Status(state="stopped", message="stopped after step 5"))
    with pytest.raises(BertlineError, match=r"node 1 ended with exit status 3.*log\.node1.*port 29500 of 127\.0\.0\.1"):
        run_in_worker(tmp_path, WORK, RuntimeConfig(**RUNTIME), several_devices=True)


def test_nodes_that_do_not_know_their_place_start_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_RANK", raising=False)
    with pytest.raises(MachineError, match="NODE_RANK and MASTER_ADDR are not set"):
        run_in_worker(tmp_path / "run", WORK, RuntimeConfig(**RUNTIME), several_devices=True)
    assert not (tmp_path / "run").exists()


def test_work_for_one_device_needs_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "result").mkdir()
    write_status(tmp_path, Status(state="finished", metrics={"dev/accuracy": 0.5}))
    assert run_in_worker(tmp_path, WORK, RuntimeConfig(**RUNTIME), several_devices=False) == {"dev/accuracy": 0.5}


def test_torchrun_is_told_the_place_whatever_its_own_variables_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed.run import config_from_args, parse_args

    monkeypatch.setenv("PET_RDZV_BACKEND", "c10d")
    monkeypatch.setenv("PET_NNODES", "7")
    node = this_node(2, {"PET_NODE_RANK": "1", "PET_RDZV_ENDPOINT": "10.0.0.1:4000"})
    command = launching._command(tmp_path / "3fa2", WORK, RuntimeConfig(**RUNTIME), True, node)
    config, *_ = config_from_args(parse_args(command[3:]))
    assert (config.min_nodes, config.max_nodes, config.rdzv_configs["rank"]) == (2, 2, 1)
    assert (config.rdzv_backend, config.rdzv_endpoint, config.run_id) == ("static", "10.0.0.1:4000", "3fa2")


@pytest.mark.parametrize(("rank", "recorded"), [(0, True), (1, False)])
def test_only_the_first_node_records_the_run(
    composed: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, recorded: bool
) -> None:
    for name, value in place(rank, 29500).items():
        monkeypatch.setenv(name, value)
    config = pipeline_config(composed("runtime.num_nodes=2"))
    monkeypatch.chdir(tmp_path)
    made_of: dict[str, Any] = {"sections": {}, "inputs": {}}
    stage = stage_named("pretrain")
    run = stage_run.StageRun(stage=stage, task_name=None, config=config, inputs={}, marks={}, made_of=made_of)
    leave_record(run.folder, run.records)
    assert (run.folder / RECORD_NAME).exists() == recorded
