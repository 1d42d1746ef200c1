"""A stage runs in front of a person: stopped, killed, started twice, changed, and resumed by the same command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import write_json
from bertline.run.folder import is_locked, read_status
from bertline.run.provenance import md5_of_path
from bertline.run.stage import open_stage, run_stage
from bertline.stages.examples import Examples
from bertline.stages.export import Export
from bertline.tracking.tracked_runs import RUNS_NAME

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests/support/stage_process.py"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def project(composed: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with params.yaml and the inputs of `pretrain`."""
    monkeypatch.chdir(tmp_path)
    for name in ("examples", "tokenizer"):
        write_json(tmp_path / "artifacts" / name / "manifest.json", {"of": name})
    Path("params.yaml").write_text(yaml.safe_dump(composed("tracking.enabled=false", "runtime.runs_folder=runs")))
    return tmp_path


@pytest.fixture
def start(project: Path) -> Iterator[Start]:
    """Start the stage; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start_once(**extra: str) -> subprocess.Popen[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DVC_")}
        environment = {**kept, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{SCRIPT.parent}", **extra}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, str(SCRIPT)]
        started.append(subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes))
        return started[-1]

    yield start_once
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def folder_of(project: Path) -> Path:
    (folder,) = (path for path in (project / "runs/pretrain").glob("*") if path.is_dir())
    return folder


@contextmanager
def hang_up(disposition: signal.Handlers) -> Iterator[None]:
    """What SIGHUP does in the processes that are started."""
    before = signal.signal(signal.SIGHUP, disposition)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def wait_for_step_3(project: Path, process: subprocess.Popen[str]) -> None:
    wait_until(lambda: any(path.read_text() == "3" for path in project.glob("runs/pretrain/*/at")), process)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_a_signal_stops_the_stage_and_the_same_command_resumes(
    project: Path, start: Start, number: signal.Signals
) -> None:
    with hang_up(signal.SIG_DFL):  # also where pytest runs under nohup
        process = start()
    wait_for_step_3(project, process)
    for _ in range(2 if number == signal.SIGTERM else 1):  # which Slurm repeats
        process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert number.name in error and "run the same command again to resume" in error and "Traceback" not in error
    stopped = read_status(folder_of(project))
    assert stopped.state == "stopped" and stopped.work_s
    (project / "go").touch()
    again = start()
    out, error = again.communicate(timeout=60)
    assert again.returncode == 0, error
    assert "val/mlm_loss 3.64" in out
    workers = (folder_of(project) / "steps").read_text().split()
    assert workers == [str(process.pid)] * 3 + [str(again.pid)] * 2
    finished = read_status(folder_of(project))
    assert finished.metrics == {"val/mlm_loss": 3.64} and finished.work_s > stopped.work_s


def test_under_nohup_a_lost_terminal_changes_nothing(project: Path, start: Start) -> None:
    with hang_up(signal.SIG_IGN):
        process = start()
    wait_for_step_3(project, process)
    process.send_signal(signal.SIGHUP)
    (project / "go").touch()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error


def test_a_killed_stage_leaves_its_folder_free_and_is_resumed(project: Path, start: Start) -> None:
    process = start()
    wait_for_step_3(project, process)
    assert is_locked(folder_of(project))
    process.kill()
    process.communicate()
    assert not is_locked(folder_of(project)) and read_status(folder_of(project)).state == "running"
    (project / "go").touch()
    again = start()
    again.communicate(timeout=60)
    assert (folder_of(project) / "steps").read_text().split() == [str(process.pid)] * 3 + [str(again.pid)] * 2


def test_a_second_command_says_who_works_waits_and_takes_the_result(project: Path, start: Start) -> None:
    first = start()
    wait_for_step_3(project, first)
    second = start()
    assert second.stdout is not None
    line = second.stdout.readline()
    assert f"process {first.pid} on " in line and "waiting for it" in line
    (project / "go").touch()
    first.communicate(timeout=60)
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 0 and "is finished already" in out
    assert (folder_of(project) / "steps").read_text().split() == [str(first.pid)] * 5


def test_a_failed_stage_says_why_and_a_changed_result_is_made_again(project: Path, start: Start) -> None:
    (project / "go").touch()
    failed = start(FAILS="yes")
    _, error = failed.communicate(timeout=60)
    assert failed.returncode == 1 and error == "error: the work failed as asked\n"
    assert read_status(folder_of(project)).message == "the work failed as asked"
    start().communicate(timeout=60)
    (folder_of(project) / "result/manifest.json").write_text("{}")
    again = start()
    _, error = again.communicate(timeout=60)
    assert again.returncode == 0 and "is not what was written" in error
    assert json.loads((folder_of(project) / "result/manifest.json").read_text()) == {"steps": 5}


def test_inputs_that_change_during_the_work_make_its_result_worthless(project: Path, start: Start) -> None:
    process = start()
    wait_for_step_3(project, process)
    write_json(project / "artifacts/examples/manifest.json", {"of": "others"})
    (project / "go").touch()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "artifacts/examples" in error and "has changed or is gone" in error


def refused(stage: str, mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message), open_stage(stage, mapping):
        pass


def test_by_hand_an_artifact_of_another_configuration_is_refused_and_a_named_folder_is_read(
    project: Path, composed: Callable[..., dict[str, Any]]
) -> None:
    mapping = composed("tracking.enabled=false")
    lock = {"stages": {"examples": {"params": {"params.yaml": {"examples": {**mapping["examples"], "seed": 77}}}}}}
    Path("dvc.lock").write_text(yaml.safe_dump(lock))
    refused("pretrain", mapping, r"examples\.seed \(77 there, .* here\).*inputs\.examples=FOLDER")
    other = project / "other"
    write_json(other / "manifest.json", {"of": "others"})
    with open_stage("pretrain", {**mapping, "inputs": {"examples": str(other)}}) as stage:
        assert stage.inputs["examples"] == other
        first = stage.fingerprint
    write_json(other / "manifest.json", {"of": "more"})
    with open_stage("pretrain", {**mapping, "inputs": {"examples": str(other)}}) as stage:
        assert stage.fingerprint != first
    refused("pretrain", {**mapping, "inputs": {"examples": "nowhere"}}, "inputs.examples is nowhere")


def test_by_hand_an_artifact_with_a_flipped_bit_is_refused_and_named(
    project: Path, composed: Callable[..., dict[str, Any]]
) -> None:
    mapping, shard = composed("tracking.enabled=false"), project / "artifacts/examples/train/shard-0"
    shard.parent.mkdir()
    shard.write_bytes(b"tokens")
    outs = [{"path": "artifacts/examples", "md5": md5_of_path(project / "artifacts/examples")}]
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": {"examples": {"outs": outs}}}))
    with open_stage("pretrain", mapping) as stage:
        assert stage.inputs["examples"] == Path("artifacts/examples")
    shard.write_bytes(b"tokent")
    refused("pretrain", mapping, r"artifacts/examples was changed or damaged.*dvc checkout --force artifacts/examples")
    with open_stage("pretrain", {**mapping, "inputs": {"examples": "artifacts/examples"}}):
        pass


def test_by_hand_an_artifact_that_dvc_made_is_read(project: Path, composed: Callable[..., dict[str, Any]]) -> None:
    mapping = {**composed("tracking.enabled=false"), "task_name": "docs_library"}
    for name in ("pretrain", "tasks/docs_library"):
        write_json(project / "artifacts" / name / "manifest.json", {"of": name})
    pretrained = {key: mapping[key] for key in ("model", "objective", "optimizer", "schedule", "pretrain")}
    rows = {"tasks.docs_library": mapping["tasks"]["docs_library"], "python_docs": mapping["python_docs"]}
    made_under = {"pretrain": pretrained, "task_data@docs_library": rows}
    assert "family" not in mapping["model"]  # a default that no YAML names
    stages = {name: {"params": {"params.yaml": sections}} for name, sections in made_under.items()}
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": stages}))
    with open_stage("sweep", mapping) as stage:
        assert stage.inputs["pretrain"] == Path("artifacts/pretrain")
    deeper = {**mapping, "model": {**mapping["model"], "num_hidden_layers": 3}}
    refused("sweep", deeper, r"model\.num_hidden_layers \(2 there, 3 here\)")


def test_a_stage_of_dvc_begins_with_its_place_in_the_whole(project, composed, monkeypatch, capsys):
    monkeypatch.setenv("DVC_STAGE", "pretrain")
    settings = composed("tracking.enabled=false", "runtime.runs_folder=runs")
    with open_stage("pretrain", settings):
        assert capsys.readouterr().out.startswith(f"stage 4 of {6 + 2 * len(settings['tasks'])}\n")


@pytest.mark.parametrize(
    ("stage", "inputs"), [(Examples, ("corpus", "tokenizer")), (Export, ("pretrain", "tasks", "sweep", "evaluate"))]
)
def test_a_stage_whose_tracking_is_off_imports_no_mlflow(project, composed, monkeypatch, stage, inputs):
    monkeypatch.setitem(sys.modules, "mlflow", None)  # importing it would fail
    for name in ("registry", "sending", "store"):
        monkeypatch.delitem(sys.modules, f"bertline.tracking.{name}", raising=False)
    monkeypatch.setattr(stage, "build", lambda *_: {})
    for name in inputs:
        write_json(project / "artifacts" / name / "manifest.json", {"of": name})
    settings = composed("tracking.enabled=false", "runtime.runs_folder=runs")
    folder = run_stage(stage.name, {**settings, "tasks": {}}).parent
    assert read_status(folder).state == "finished" and not (folder / RUNS_NAME).exists()


@pytest.mark.parametrize("under_dvc", [False, True])
def test_a_stage_that_is_not_used_leaves_nothing_by_hand_and_under_dvc_says_why(
    project, composed, monkeypatch, under_dvc
):
    settings = composed("experiment=finetune", "pretrain.start_from=some/model", "tracking.enabled=false")
    if under_dvc:
        monkeypatch.setenv("DVC_STAGE", "tokenizer")
    shutil.rmtree(project / "artifacts/tokenizer")
    folder = run_stage("tokenizer", settings)
    assert not (project / "runs/tokenizer").exists()
    assert folder.exists() == under_dvc == (project / "artifacts/pages/data.html").exists()
    if under_dvc:
        assert "fine-tuned as it is" in json.loads((folder / "manifest.json").read_text())["reason"]
        assert json.loads((project / "artifacts/metrics/tokenizer.json").read_text()) == {}
