"""Records in MLflow of work whose command is killed, closed or interrupted while its worker goes on."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

import tiny
from bertline.foundation.files import folder_written_atomically, write_json
from bertline.foundation.metrics_log import MetricsLog
from bertline.orchestration import launching, worker
from bertline.orchestration.config import pipeline_config
from bertline.orchestration.ownership import is_locked
from bertline.orchestration.recording import (
    OPENING_NAME,
    Opening,
    end_without_recipe,
    follow_work,
    leave_opening,
    opened,
)
from bertline.orchestration.stages import STAGES, stage_named
from bertline.orchestration.status import Status, hold_unopened, mark_open, mark_watched, read_status, write_status
from bertline.orchestration.stopping import Detached, Stopped, end_as_stopped, stop_on_signals
from bertline.tracking.config import TrackingConfig
from bertline.tracking.tracker import open_tracker

OPENING = Opening(
    name="pretrain",
    key="1ed2",
    params={"model": {"hidden_size": 8}},
    tags={"bertline.fingerprint": "1ed2"},
    inputs={},
    pipeline_key="pipeline",
    pipeline_name="docs_tiny",
    pipeline_tags={},
    pipeline_params={},
    pipeline_config={},
)
NUM_STEPS = 3


def recipe(folder: Path) -> None:
    """What a recipe does with its records, around a worker that waits for the file `go`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as a terminal starts it; under nohup it would be ignored
    stop_on_signals()
    code = "import sys, test_recording as t; t.work(sys.argv[1])"
    launching._command = lambda *_: [sys.executable, "-c", code, str(folder)]  # type: ignore[assignment]
    tracking = TrackingConfig(**yaml.safe_load((folder / "config.yaml").read_text())["config"]["tracking"])
    try:
        leave_opening(folder, OPENING)
        with mark_open(folder), opened(OPENING, tracking) as (tracker, record):
            follow_work(record, stage_named("pretrain"), folder)
            tracker.outbox.flush()  # type: ignore[attr-defined]
            launching.run_in_worker(folder, "bertline.none:none", tiny.runtime(), several_devices=False)
    except KeyboardInterrupt as error:
        end_as_stopped(error)


def work(folder: str) -> None:
    """The worker: the steps of a curve, of which the last come after the recipe is gone."""

    def train(_: str, __: object, ___: object, run: Path) -> dict[str, float]:
        log = MetricsLog(run / "metrics.jsonl")
        log.log(1, {"train/mlm_loss": 4.0})
        (run / "ready").touch()
        while not (run / "go").exists():
            time.sleep(0.05)
        for step in range(2, NUM_STEPS + 1):
            log.log(step, {"train/mlm_loss": 4.0 / step})
        (run / "mask_predictions.txt").write_text("a [MASK]: b")
        with folder_written_atomically(run / "result") as result:
            write_json(result / "manifest.json", {})
        return {"val/mlm_loss": 3.64}

    worker._work = train  # type: ignore[assignment]
    sys.exit(worker.main(Path(folder), "bertline.none:none"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One store for all tests: making its tables is the slow part."""
    return f"sqlite:///{tmp_path_factory.mktemp('recording') / 'mlflow.db'}"


@pytest.fixture
def tracking(store: str, request: pytest.FixtureRequest) -> TrackingConfig:
    return TrackingConfig(
        enabled=True,
        uri=store,
        experiment_name=request.node.name,
        log_text=False,
        studies_url="sqlite:///runs/studies.db",
        system_metrics=False,
        system_metrics_every_s=1.0,
    )


Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start(composed: Callable[..., dict[str, Any]], tracking: TrackingConfig, tmp_path: Path) -> Start:
    """Start `recipe` in a session of its own and wait for its worker; the run folder is `tmp_path / "run"`."""
    folder = tmp_path / "run"
    folder.mkdir()
    config = {**composed("experiment=smoke"), "tracking": dataclasses.asdict(tracking)}
    frozen = {"stage": "pretrain", "task_name": None, "inputs": {}, "input_marks": {}, "made_of": {"inputs": {}}}
    (folder / "config.yaml").write_text(yaml.safe_dump({**frozen, "config": config}))

    def started() -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        code = "import sys; from pathlib import Path; import test_recording as t; t.recipe(Path(sys.argv[1]))"
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        wait_for(lambda: (folder / "ready").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        return process

    return started


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def statuses(tracking: TrackingConfig) -> dict[str, str]:
    with open_tracker(tracking, pipeline_key="another", tags={}, params={}) as tracker:
        runs = tracker.store.find_runs({})  # type: ignore[attr-defined]
    named = {run.data.tags.get("bertline.stage") or run.data.tags["bertline.pipeline_key"]: run for run in runs}
    return {name: run.info.status for name, run in named.items() if name != "another"}


def test_a_worker_that_outlives_its_command_completes_the_record(
    start: Start, tracking: TrackingConfig, tmp_path: Path
) -> None:
    process = start()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(600)
    assert statuses(tracking) == {"pipeline": "RUNNING", "pretrain": "RUNNING"}
    (tmp_path / "run/go").touch()
    wait_for(lambda: not is_locked(tmp_path / "run"))
    assert statuses(tracking) == {"pipeline": "FINISHED", "pretrain": "FINISHED"}, (tmp_path / "run/log").read_text()
    with open_tracker(tracking, pipeline_key="pipeline", tags={}, params={}) as tracker:
        (run,) = tracker.store.find_runs({"bertline.stage": "pretrain"})  # type: ignore[attr-defined]
        (pipeline,) = tracker.store.find_runs({"bertline.pipeline_key": "pipeline"})  # type: ignore[attr-defined]
        client = tracker.store.client  # type: ignore[attr-defined]
        curve = client.get_metric_history(run.info.run_id, "train/mlm_loss")
        attached = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert pipeline.info.run_name == "docs_tiny pipeline"
    assert [point.step for point in curve] == [*range(1, NUM_STEPS + 1)]
    assert run.data.metrics["val/mlm_loss"] == 3.64
    assert attached >= {"manifest.json", "metrics.json", "mask_predictions.txt"}
    assert run.data.tags["mlflow.runName"] == "pretrain: MLM 3.64"
    assert "`val/mlm_loss` | 3.64" in run.data.tags["mlflow.note.content"]
    assert run.data.tags["bertline.output_sha256"] == read_status(tmp_path / "run").result_sha256


@pytest.mark.parametrize("ago_s", [-600.0, 61.0])  # the mark stays fresh, however slow this machine is
def test_a_killed_command_of_another_machine_leaves_the_record_to_the_worker_or_to_the_next_command(
    start: Start, tracking: TrackingConfig, tmp_path: Path, ago_s: float
) -> None:
    """Within a minute of its last mark, the worker cannot know that it was killed, and leaves it the record."""
    folder = tmp_path / "run"
    process = start()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(600)
    mark_watched(folder)
    marked_at = time.time() - ago_s
    os.utime(folder / "watched", (marked_at, marked_at))
    (folder / "go").touch()
    wait_for(lambda: not is_locked(folder))
    said = "no command watches this run any more: its record in MLflow is completed here"
    by_worker = ago_s > 60
    assert (said in (folder / "log").read_text()) == by_worker
    ended = "FINISHED" if by_worker else "RUNNING"
    assert statuses(tracking) == {"pipeline": ended, "pretrain": ended}
    assert start().wait(600) == 0
    assert statuses(tracking) == {"pipeline": "FINISHED", "pretrain": "FINISHED"}
    with open_tracker(tracking, pipeline_key="pipeline", tags={}, params={}) as tracker:
        (run,) = tracker.store.find_runs({"bertline.stage": "pretrain"})  # type: ignore[attr-defined]
        curve = tracker.store.client.get_metric_history(run.info.run_id, "train/mlm_loss")  # type: ignore[attr-defined]
    assert [point.step for point in curve] == [*range(1, NUM_STEPS + 1)]


@pytest.mark.parametrize(("state", "expected"), [("stopped", "KILLED"), ("failed", "FAILED")])
def test_work_that_ends_early_after_its_command_is_gone_gives_the_run_its_status(
    composed: Callable[..., dict[str, Any]], tracking: TrackingConfig, tmp_path: Path, state: Any, expected: str
) -> None:
    config = pipeline_config({**composed("experiment=smoke"), "tracking": dataclasses.asdict(tracking)})
    leave_opening(tmp_path, OPENING)
    write_status(tmp_path, Status(state=state, message="the text is empty"))
    with mark_open(tmp_path):
        end_without_recipe(tmp_path, "pretrain", config)
    assert statuses(tracking) == {}
    end_without_recipe(tmp_path, "pretrain", config)
    assert statuses(tracking) == {"pipeline": expected, "pretrain": expected}


def test_an_interrupted_command_ends_the_run_only_if_it_stopped_the_work(tracking: TrackingConfig) -> None:
    for error, expected in (
        (Detached("by SIGINT (Ctrl-C); training continues", signal.SIGINT), "RUNNING"),
        (Stopped("by SIGINT (Ctrl-C)", signal.SIGINT), "KILLED"),
        (Detached("by SIGTERM; it ended meanwhile", signal.SIGTERM), "KILLED"),
    ):
        with suppress(KeyboardInterrupt), opened(OPENING, tracking) as (tracker, record):
            record.log_metrics({"val/mlm_loss": 3.64})
            if "meanwhile" in str(error):
                tracker.outbox.flush()  # type: ignore[attr-defined]  # the other command opens the run later
                with suppress(KeyboardInterrupt), opened(OPENING, tracking):
                    raise Stopped("by SIGTERM", signal.SIGTERM)
            raise error
        assert statuses(tracking) == {"pipeline": expected, "pretrain": expected}


def test_a_folder_is_unopened_only_while_no_recipe_has_it(tmp_path: Path) -> None:
    with mark_open(tmp_path), hold_unopened(tmp_path) as alone:
        assert not alone
    with hold_unopened(tmp_path) as alone:
        assert alone


def test_an_opening_is_read_as_it_was_left(tmp_path: Path) -> None:
    given = dataclasses.replace(OPENING, inputs={"tasks": ("data/tasks", "87bf")})
    leave_opening(tmp_path, given)
    read = Opening(**json.loads((tmp_path / OPENING_NAME).read_text()))
    assert {name: tuple(value) for name, value in read.inputs.items()} == given.inputs
    assert dataclasses.replace(read, inputs=given.inputs) == given


def test_only_work_of_workers_has_files_to_attach() -> None:
    assert {stage.name for stage in STAGES if stage.attachments or stage.tables} == {"pretrain", "sweep"}
    assert all(stage.in_worker for stage in STAGES if stage.attachments)
