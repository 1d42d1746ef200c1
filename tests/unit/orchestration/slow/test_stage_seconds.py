"""The headline `seconds` of a stage: those of its work, whichever command waited for it, and for how long."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.foundation.files import folder_written_atomically, read_json, write_json
from bertline.orchestration import worker
from bertline.orchestration.config import pipeline_config
from bertline.orchestration.stage_run import StageRun
from bertline.orchestration.stages import stage_named
from bertline.orchestration.status import read_status

ALONE_S = 0.5


def work(folder: str) -> None:
    """The worker, which waits for the file `go`."""

    def train(_: str, __: object, ___: object, run: Path) -> dict[str, float]:
        (run / "ready").touch()
        while not (run / "go").exists():
            time.sleep(0.02)
        with folder_written_atomically(run / "result") as result:
            write_json(result / "manifest.json", {})
        return {"val/mlm_loss": 3.64}

    worker._work = train  # type: ignore[assignment]
    sys.exit(worker.main(Path(folder), "bertline.none:none"))


@pytest.fixture
def opened(composed: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StageRun:
    """A pretraining with its run folder, by hand."""
    monkeypatch.chdir(tmp_path)
    mapping = composed("experiment=smoke", "tracking.enabled=false")
    made_of: dict[str, Any] = {"sections": {}, "inputs": {}}
    config, stage = pipeline_config(mapping), stage_named("pretrain")
    run = StageRun(stage=stage, task_name=None, config=config, inputs={}, marks={}, made_of=made_of)
    run.folder.mkdir(parents=True)
    frozen = {"stage": "pretrain", "task_name": None, "inputs": {}, "input_marks": {}, "made_of": {"inputs": {}}}
    (run.folder / "config.yaml").write_text(yaml.safe_dump({**frozen, "config": mapping}))
    return run


def wait_for_the_work(run: StageRun) -> None:
    """What a command does that starts now: it waits for the work and records it."""
    now = dataclasses.replace(run, opened_s=time.monotonic())
    now.finish(now.work("bertline.none:none"))


def test_a_command_that_attached_or_found_the_result_records_the_time_of_the_work(opened: StageRun) -> None:
    folder = opened.folder
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    code = "import sys, test_stage_seconds as t; t.work(sys.argv[1])"
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], env=environment)
    try:
        while not (folder / "ready").exists():
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(ALONE_S)
        attached_at = time.time()
        threading.Timer(0.5, (folder / "go").touch).start()
        wait_for_the_work(opened)
    finally:
        process.kill()
        process.wait()
    status = read_status(folder)
    assert status.started_s is not None
    assert status.ended_s is not None
    seconds = round(status.ended_s - status.started_s, 1)
    assert read_json(folder / "headline.json")["seconds"] == seconds
    assert seconds >= ALONE_S + 0.5
    assert status.started_s <= attached_at - ALONE_S < status.ended_s  # the command came late
    (folder / "headline.json").unlink()
    wait_for_the_work(opened)  # it has ended
    assert read_json(folder / "headline.json")["seconds"] == seconds


def test_a_status_of_an_earlier_version_has_no_times_and_the_command_gives_its_own(opened: StageRun) -> None:
    (opened.folder / "result").mkdir()
    write_json(opened.folder / "status.json", {"state": "finished", "metrics": {"val/mlm_loss": 3.64}})
    assert read_status(opened.folder).work_s is None
    opened_s = time.monotonic() - 70
    dataclasses.replace(opened, opened_s=opened_s).finish(opened.work("bertline.none:none"))
    assert 70 <= read_json(opened.folder / "headline.json")["seconds"] <= time.monotonic() - opened_s + 0.1
